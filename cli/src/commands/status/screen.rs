//! The screen of `canopy status`: a function of what was answered, so that it can be tested for four leaves and for a hundred.
//!
//! What is wrong comes first and by name; what is well is summed up. In a large tree nodes that say the same share a line.
//! Versions that are only kept for a while beside what is wanted are not counted as missing.

use std::collections::{BTreeMap, BTreeSet};

use comfy_table::{Table, presets};
use serde_json::Value;

use super::feed;
use crate::show;

/// Nodes from which on those that say the same share a line.
const MANY: usize = 16;
/// Replicas that lack something are listed up to this number.
const MOST_LACKING: usize = 20;

/// Alarms that are named where only their number counts.
const MOST_NAMED: usize = 3;

/// One node's answer.
pub struct Report {
    pub id: String,
    pub role: String,
    pub admin: String,
    pub ready: Result<(), String>,
    pub status: Value,
}

impl Report {
    /// Shards that it should hold and answers of in no version; at a root corpora that it can't serve; at an ingest logs that it can't open.
    fn lacks(&self) -> usize {
        let closed = self.status["lacking"].as_object().map_or(0, serde_json::Map::len);
        list(&self.status["lacking"]).count() + closed + self.unserved().count()
    }

    /// Corpora that a root can't serve, with the reason.
    fn unserved(&self) -> impl Iterator<Item = String> {
        let corpora = self.status["corpora"].as_object().into_iter().flatten();
        let opening = corpora.filter(|(_, corpus)| corpus["state"] == "opening");
        opening.map(|(name, corpus)| format!("{name}: {}", text(corpus, "why")))
    }
}

/// What the topology service knows.
pub struct Tree {
    pub status: Value,
    pub replicas: Value,
}

/// All of it.
pub struct Screen {
    pub reports: Vec<Report>,
    /// `None`: the topology is static, or the service is away.
    pub tree: Option<Tree>,
    /// Why nothing is known from the service.
    pub away: Option<String>,
}

/// A line of the table of nodes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    role: String,
    health: String,
    shards: String,
    versions: String,
    reason: String,
}

const HEADER: [&str; 8] = ["node", "role", "http", "health", "shards", "documents", "version", "reason"];

pub(super) fn number(value: &Value) -> u64 {
    value.as_u64().or_else(|| value.as_str()?.parse().ok()).unwrap_or(0)
}

pub(super) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

pub(super) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or("?")
}

fn versions(value: &Value) -> String {
    let all: Vec<String> = list(value).map(|version| format!("v{}", number(version))).collect();
    if all.is_empty() { "nothing".to_owned() } else { all.join(",") }
}

/// What is moved of a corpus; `None`: nothing.
pub fn placement(placement: &Value) -> Option<String> {
    let moving: Vec<&str> = list(&placement["moving"]).filter_map(Value::as_str).collect();
    let some = moving.iter().take(5).copied().collect::<Vec<_>>().join(", ");
    let more = if moving.len() > 5 { ", ..." } else { "" };
    (!moving.is_empty()).then(|| format!("  {} shards are being moved: {some}{more}", moving.len()))
}

impl Screen {
    /// Nodes that are not ready.
    pub fn unready(&self) -> impl Iterator<Item = &Report> {
        self.reports.iter().filter(|report| report.ready.is_err())
    }

    /// Nodes that are ready and lack something of what they should hold, with how many shards.
    pub fn lacking(&self) -> impl Iterator<Item = (&Report, usize)> {
        let ready = self.reports.iter().filter(|report| report.ready.is_ok());
        ready.map(|report| (report, report.lacks())).filter(|(_, lacks)| *lacks > 0)
    }

    /// Rollouts that a judgement or a failure has stopped.
    pub fn halted(&self) -> impl Iterator<Item = String> {
        let corpora = self.tree.iter().filter_map(|tree| tree.status["corpora"].as_object()).flatten();
        corpora.filter_map(|(name, corpus)| {
            let rollout = &corpus["rollout"];
            let stopped = rollout["stopped"].as_str().filter(|why| why.starts_with("halted"))?;
            let to = number(&rollout["to"]);
            Some(show::plain(&format!(
                "the rollout of {name} to v{to} is {stopped} (canopy rollout resume, resume --accept or abort)"
            )))
        })
    }

    /// Replicas that lack for long what they should hold.
    pub fn alarmed(&self) -> Option<String> {
        let all: Vec<String> = list(&self.tree.as_ref()?.status["alarms"])
            .map(|alarm| {
                let [corpus, shard, node] = ["corpus", "shard", "node"].map(|key| text(alarm, key));
                show::plain(&format!("{corpus} {shard} on {node}"))
            })
            .collect();
        let more = if all.len() > MOST_NAMED { ", ..." } else { "" };
        let some = all.iter().take(MOST_NAMED).cloned().collect::<Vec<_>>().join(", ");
        (!all.is_empty()).then(|| format!("{} alarms: {some}{more}", all.len()))
    }

    /// Leaves that are here and that the service has asked last, because they fail.
    pub fn faulty(&self) -> impl Iterator<Item = &str> {
        let nodes = self.tree.iter().flat_map(|tree| list(&tree.status["nodes"]));
        nodes
            .filter(|node| node["health"] == "faulty" && node["state"] == "here")
            .map(|node| text(node, "node"))
    }

    /// Corpora that are answered and that the service knows no live version of.
    pub fn lost(&self) -> impl Iterator<Item = String> {
        self.tree.iter().flat_map(Tree::lost)
    }

    /// What is shown; `all`: with every replica.
    pub fn lines(&self, all: bool) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(away) = &self.away {
            lines.push(format!("the topology service says nothing: {away}"));
        }
        if let Some(tree) = &self.tree {
            tree.versions(&mut lines);
            tree.alarms(&mut lines);
            lines.extend(tree.lost().map(|lost| format!("ALARM {lost}")));
            tree.lacking(&mut lines, all);
        }
        lines.extend(feed::lines(&feed::of(&self.reports)));
        if !lines.is_empty() {
            lines.push(String::new());
        }
        lines.extend(self.nodes());
        lines
    }

    fn nodes(&self) -> Vec<String> {
        let mut rows: Vec<(Row, Vec<&Report>)> = Vec::new();
        let mut known: BTreeMap<Row, usize> = BTreeMap::new();
        for report in &self.reports {
            let row = self.row(report);
            let at = known.get(&row).copied().filter(|_| self.reports.len() > MANY);
            if let Some(at) = at {
                rows[at].1.push(report);
            } else {
                known.insert(row.clone(), rows.len());
                rows.push((row, vec![report]));
            }
        }
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_header(HEADER);
        for (row, reports) in rows {
            let documents: u64 = reports.iter().map(|report| documents(report)).sum();
            let (first, last) = (reports[0], reports[reports.len() - 1]);
            let (name, http) = match reports.len() {
                1 => (first.id.clone(), first.admin.clone()),
                count => (format!("{} .. {} ({count})", first.id, last.id), String::new()),
            };
            let documents = if row.shards.is_empty() { String::new() } else { show::count(documents) };
            table.add_row([
                name,
                row.role,
                http,
                row.health,
                row.shards,
                documents,
                row.versions,
                row.reason,
            ]);
        }
        table.lines().map(|line| line.trim_end().to_owned()).collect()
    }

    fn row(&self, report: &Report) -> Row {
        // What a version does not have is no shard of it.
        let shards: Vec<&Value> =
            list(&report.status["shards"]).filter(|shard| shard["state"] != "void").collect();
        let wanted: Vec<&&Value> = shards.iter().filter(|shard| shard["state"] != "retiring").collect();
        let serving = wanted.iter().filter(|shard| shard["state"] == "serving").count();
        let retiring = shards.len() - wanted.len();
        let versions: BTreeSet<u64> =
            wanted.iter().map(|shard| number(&shard["serving"])).filter(|version| *version > 0).collect();
        let versions: Vec<String> = versions.iter().map(|version| format!("v{version}")).collect();
        let errors = shards.iter().filter_map(|shard| shard["last_error"].as_str());
        let errors = errors.filter(|error| !error.is_empty()).take(1).map(str::to_owned);
        let passed_over = list(&report.status["passed_over"]).map(|passed| {
            let [corpus, reason] = ["corpus", "reason"].map(|key| text(passed, key));
            format!("{corpus} v{} can't be served: {reason}", number(&passed["version"]))
        });
        let of_service = self.tree.as_ref().and_then(|tree| tree.node(&report.id));
        let judged = of_service.and_then(|node| node["reason"].as_str()).filter(|reason| !reason.is_empty());
        let unready = report.ready.as_ref().err().cloned();
        // What is not ready says so by itself.
        let unserved = report.unserved().filter(|_| report.ready.is_ok());
        let own = unready.into_iter().chain(judged.map(str::to_owned)).chain(unserved);
        let reasons: Vec<String> = own.chain(errors).chain(passed_over).collect();
        let shards = match (wanted.len(), retiring) {
            (0, 0) => String::new(),
            (wanted, 0) => format!("{serving}/{wanted}"),
            (wanted, retiring) => format!("{serving}/{wanted} +{retiring} retiring"),
        };
        Row {
            role: report.role.clone(),
            health: health(report, of_service),
            shards,
            versions: versions.join(","),
            reason: show::plain(&reasons.join("; ")),
        }
    }
}

fn documents(report: &Report) -> u64 {
    let serving = list(&report.status["shards"]).filter(|shard| shard["state"] != "retiring");
    serving.map(|shard| number(&shard["documents"])).sum()
}

/// In a word: what the node says, then what the service makes of it when that is not plainly well.
fn health(report: &Report, of_service: Option<&Value>) -> String {
    let own = match (&report.ready, report.status.is_null(), report.lacks()) {
        (Ok(()), _, 0) => "ready".to_owned(),
        (Ok(()), _, lacks) => format!("ready, lacks {lacks}"),
        (Err(_), true, _) => "no answer".to_owned(),
        (Err(_), false, _) => "not ready".to_owned(),
    };
    let more = of_service.into_iter().flat_map(|node| {
        let [state, health] = ["state", "health"].map(|key| node[key].as_str().unwrap_or_default());
        let state = (state != "here").then_some(state);
        [state, Some(health).filter(|_| state.is_none())]
    });
    let more = more.flatten().find(|word| !["", "healthy"].contains(word));
    more.map_or_else(|| own.clone(), |word| format!("{own}, {word}"))
}

impl Tree {
    fn node(&self, id: &str) -> Option<&Value> {
        list(&self.status["nodes"]).find(|node| node["node"] == id)
    }

    /// Versions and rollouts, with how far they are.
    fn versions(&self, lines: &mut Vec<String>) {
        for (name, corpus) in self.status["corpora"].as_object().into_iter().flatten() {
            // How the last ones ended is in `canopy rollout status`.
            let now = super::super::rollout::lines(name, corpus);
            let ended = list(&corpus["ended"]).count().min(3);
            lines.extend(now.iter().take(now.len() - ended.min(now.len() - 1)).cloned());
            let rollout = &corpus["rollout"];
            if let (Some(have), Some(all @ 1..)) =
                (rollout["resident"].as_u64(), rollout["replicas"].as_u64())
            {
                let filled = usize::try_from(have * 20 / all).unwrap_or(20).min(20);
                lines.push(format!(
                    "  [{}{}] {} %",
                    "#".repeat(filled),
                    ".".repeat(20 - filled),
                    have * 100 / all
                ));
            }
            lines.extend(placement(&corpus["placement"]));
        }
    }

    fn alarms(&self, lines: &mut Vec<String>) {
        for alarm in list(&self.status["alarms"]).take(MOST_LACKING) {
            let error = text(alarm, "last_error");
            let because = if error.is_empty() { String::new() } else { format!(": {error}") };
            lines.push(show::plain(&format!(
                "ALARM {} {} on {} wants {} and serves {} since {} s{because}",
                text(alarm, "corpus"),
                text(alarm, "shard"),
                text(alarm, "node"),
                versions(&alarm["wanted"]),
                versions(&alarm["serving"]),
                number(&alarm["for_ms"]) / 1000,
            )));
        }
    }

    fn lost(&self) -> impl Iterator<Item = String> {
        list(&self.status["lost"]).map(|lost| {
            let corpus = text(lost, "corpus");
            let newest = list(&lost["versions"]).filter_map(Value::as_u64).max().unwrap_or(0);
            let place = format!("canopy topology place --corpus {corpus}, then ");
            show::plain(&format!(
                "{} leaves hold {} shards of {corpus} ({}), and the topology service knows no live version of it (has it lost its \
                 store?): {}canopy rollout start --corpus {corpus} --version {newest} --at-once",
                number(&lost["leaves"]),
                number(&lost["shards"]),
                versions(&lost["versions"]),
                if lost["placed"] == true { "" } else { &place },
            ))
        })
    }

    /// Replicas: how many are how, and those that lack something.
    fn lacking(&self, lines: &mut Vec<String>, all: bool) {
        let mut counts: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
        for line in list(&self.replicas) {
            *counts.entry(text(line, "corpus")).or_default().entry(text(line, "state")).or_default() += 1;
        }
        for (corpus, states) in counts {
            let states: Vec<String> =
                states.iter().map(|(state, count)| format!("{count} {state}")).collect();
            lines.push(format!("{corpus}: replicas: {}", states.join(", ")));
        }
        let lacks = |line: &&Value| all || !["serving", "idle", "void"].contains(&text(line, "state"));
        let lacking: Vec<&Value> = list(&self.replicas).filter(lacks).collect();
        let most = if all { lacking.len() } else { MOST_LACKING };
        for line in lacking.iter().take(most) {
            let retiring = list(&line["retiring"]).count();
            let kept = if retiring == 0 {
                String::new()
            } else {
                format!(", keeps {}", versions(&line["retiring"]))
            };
            let lag =
                line["lag_ms"].as_u64().map_or_else(String::new, |lag| format!(", {lag} ms behind the log"));
            let error = text(line, "last_error");
            let because = if error.is_empty() { String::new() } else { format!(": {error}") };
            lines.push(show::plain(&format!(
                "  {} {} on {}: {}, wants {}, serves {}{kept}{lag}{because}",
                text(line, "corpus"),
                text(line, "shard"),
                text(line, "node"),
                text(line, "state"),
                versions(&line["wanted"]),
                versions(&line["serving"]),
            )));
        }
        if lacking.len() > most {
            lines.push(format!("  ... and {} more; --replicas lists all", lacking.len() - most));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn leaf(number: usize, version: u64) -> Report {
        Report {
            id: format!("leaf-{number}"),
            role: "leaf".to_owned(),
            admin: format!("h:{number}"),
            ready: Ok(()),
            status: json!({ "shards": [
                { "state": "serving", "serving": version, "wanted": version, "documents": "10", "last_error": "" },
                { "state": "retiring", "serving": 1, "wanted": null, "documents": "10", "last_error": "" },
            ]}),
        }
    }

    fn tree(leaves: usize, behind: usize) -> Tree {
        let node = |number| json!({ "node": format!("leaf-{number}"), "state": "here", "health": "healthy", "reason": "" });
        let replica = |number: usize| {
            let late = number < behind;
            json!({ "corpus": "web", "shard": "main/0", "node": format!("leaf-{number}"), "wanted": [2],
                    "serving": if late { json!([]) } else { json!([2]) }, "retiring": [1],
                    "state": if late { "failed" } else { "serving" }, "lag_ms": null,
                    "last_error": if late { "no room\u{1b}[2J" } else { "" } })
        };
        let alarm = json!({ "corpus": "web", "shard": "main/0", "node": "leaf-0", "wanted": [2], "serving": [],
                            "for_ms": 200_000, "last_error": "no room" });
        Tree {
            status: json!({
                "nodes": (0..leaves).map(node).collect::<Vec<_>>(),
                "corpora": { "web": {
                    "live": 1, "pins": [{ "version": 1, "share": 10_000 }], "waiting": null,
                    "rollout": { "from": 1, "to": 2, "state": "canary 10 %", "resident": 3, "replicas": 4, "failed": [] },
                    "placement": { "moving": ["main/0"] },
                    "ended": [{ "to": 1, "outcome": "serving", "reason": "every step passed" }],
                }},
                "alarms": if behind > 0 { json!([alarm]) } else { json!([]) },
            }),
            replicas: (0..leaves).map(replica).collect(),
        }
    }

    fn screen(leaves: usize, behind: usize) -> Screen {
        let reports = (0..leaves).map(|number| leaf(number, 2)).collect();
        Screen { reports, tree: Some(tree(leaves, behind)), away: None }
    }

    #[test]
    fn a_small_tree_has_a_line_for_each_node_and_nothing_kept_counts_as_missing() {
        let shown = screen(4, 1).lines(false).join("\n");
        for part in [
            "v1 -> v2: canary 10 %",
            "[###############.....] 75 %",
            "1 shards are being moved: main/0",
            "ALARM web main/0 on leaf-0 wants v2 and serves nothing since 200 s: no room",
            "web: replicas: 1 failed, 3 serving",
            "web main/0 on leaf-0: failed, wants v2, serves nothing, keeps v1: no room",
            "1/1 +1 retiring",
        ] {
            assert!(shown.contains(part), "{part} in\n{shown}");
        }
        assert!(!shown.contains('\u{1b}') && !shown.contains("every step passed"), "{shown}");
        assert_eq!(shown.matches("leaf-3").count(), 1, "what is well is named once:\n{shown}");
        let every = screen(4, 1).lines(true).join("\n");
        assert!(every.contains("web main/0 on leaf-3: serving, wants v2, serves v2"), "{every}");
    }

    #[test]
    fn a_hundred_leaves_fit_on_one_screen() {
        let mut many = screen(100, 30);
        many.reports[7].ready = Err("opening".to_owned());
        let lines = many.lines(false);
        let shown = lines.join("\n");
        assert!(lines.len() <= 40, "{} lines:\n{shown}", lines.len());
        assert!(shown.contains("leaf-0 .. leaf-99 (99)") && shown.contains("... and 10 more"), "{shown}");
        assert!(shown.contains("not ready") && shown.contains("opening"), "{shown}");
    }

    #[test]
    fn a_static_tree_and_a_service_that_is_away_are_shown_all_the_same() {
        let fixed = Screen { reports: vec![leaf(1, 3)], tree: None, away: None };
        let lines = fixed.lines(false);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[1].contains("v3") && lines[1].contains("ready"), "{lines:?}");
        let away = Screen { away: Some("nothing answers".to_owned()), ..fixed };
        assert!(away.lines(false)[0].contains("nothing answers"));
    }

    #[test]
    fn a_spare_is_well_and_a_leaf_that_lacks_a_shard_is_not_though_it_is_ready() {
        let mut shown = screen(3, 0);
        shown.reports[0].status = json!({ "shards": [], "lacking": [] });
        shown.reports[1].status["lacking"] =
            json!([{ "corpus": "web", "shard": "main/7", "state": "failed" }]);
        assert_eq!(shown.unready().count(), 0);
        let lacking: Vec<_> = shown.lacking().map(|(report, lacks)| (report.id.as_str(), lacks)).collect();
        assert_eq!(lacking, [("leaf-1", 1)]);
        assert!(shown.lines(false).iter().any(|line| line.contains("ready, lacks 1")));
        // What does not answer at all is said once.
        shown.reports[1].ready = Err("opening".to_owned());
        assert_eq!((shown.unready().count(), shown.lacking().count()), (1, 0));
    }

    #[test]
    fn what_the_service_makes_of_a_node_is_said_beside_what_it_says_itself() {
        let of = |state: &str, condition: &str| {
            let node = json!({ "state": state, "health": condition });
            health(&leaf(1, 1), Some(&node))
        };
        assert_eq!(of("here", "healthy"), "ready");
        assert_eq!(of("here", "sub_healthy"), "ready, sub_healthy");
        assert_eq!(of("drained", "draining"), "ready, drained");
        assert_eq!(health(&leaf(1, 1), None), "ready");
    }
}
