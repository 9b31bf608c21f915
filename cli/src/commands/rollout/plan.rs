//! Plans of rollouts: read from a file with their judged queries, checked before anything is sent, and printed when they are tried
//! dry. Errors name file, line and field.

use std::{io::ErrorKind, path::Path};

use anyhow::{Context, Result, anyhow};
use canopy_common::bounded;
use canopy_topology::{
    gates::judged::{Judged, MOST_BYTES},
    rollout::Policy,
};
use serde::Deserialize;
use serde_json::Value;

use crate::{say::say, show::bytes};

/// A plan as the service reads it: its `judged` names a file, whose text takes the name's place.
pub fn read(file: &Path) -> Result<String> {
    let not_a_plan = || format!("{} is not a rollout plan", file.display());
    let text = bounded::text(file, bounded::MOST_SETTINGS).with_context(|| file.display().to_string())?;
    let mut plan: toml::Table = toml::from_str(&text).with_context(not_a_plan)?;
    let judged = plan.remove("judged");
    let mut policy = Policy::deserialize(plan).with_context(not_a_plan)?;
    if let Some(judged) = judged {
        let name = judged.as_str().ok_or_else(|| anyhow!("judged: it is not the name of a file"));
        policy.judged = read_judged(&file.with_file_name(name.with_context(not_a_plan)?))?;
    }
    if let Some((key, reason)) = policy.problems().into_iter().next() {
        return Err(anyhow!("{key}: {reason}").context(not_a_plan()));
    }
    Ok(serde_json::to_string(&policy)?)
}

fn read_judged(file: &Path) -> Result<Judged> {
    let name = || file.display().to_string();
    let text = bounded::text(file, MOST_BYTES as u64).map_err(|error| match error.kind() {
        ErrorKind::FileTooLarge => {
            anyhow!("it is too long; the limit is {MOST_BYTES} bytes: judge fewer queries")
        }
        _ => error.into(),
    });
    let judged = Judged::from(text.with_context(name)?.as_str());
    let count = judged.queries().map_err(|reason| anyhow!(reason)).with_context(name)?.len();
    if count == 0 {
        return Err(
            anyhow!("it is empty; write one judged query a line, or leave `judged` out").context(name())
        );
    }
    Ok(judged)
}

/// What a rollout would do, for people.
pub fn print(plan: &Value) {
    for line in plan["answer"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        say!("{line}");
    }
    for step in plan["steps"].as_array().into_iter().flatten() {
        let waves = step["waves"].as_array().map_or(0, Vec::len);
        say!(
            "{:>4} %  bake {}  sample {}  after {} of loading, {} rows hold it{}",
            step["percent"],
            step["bake"].as_str().unwrap_or("?"),
            step["sample"],
            if waves == 1 { "1 wave".to_owned() } else { format!("{waves} waves") },
            step["rows"],
            match step["new_replica_qps"].as_f64() {
                Some(qps) if qps > 0.0 => format!(", {qps:.1} queries/s at each replica"),
                _ => String::new(),
            },
        );
        for wave in step["waves"].as_array().into_iter().flatten() {
            let fetched = match wave["bytes"].as_u64() {
                Some(count) if count > 0 => format!(", about {} to fetch", bytes(count)),
                _ => String::new(),
            };
            say!("        {} replicas on {} leaves{fetched}", wave["replicas"], wave["leaves"]);
        }
    }
    for skipped in plan["skipped"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        say!("not judged: {skipped}");
    }
    for warning in plan["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        say!("warning: {warning}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_brings_its_judged_queries_and_errors_name_file_line_and_field() {
        let directory = tempfile::tempdir().unwrap();
        let [plan, judged] = ["plan.toml", "judged.jsonl"].map(|name| directory.path().join(name));
        std::fs::write(&plan, "judged = \"judged.jsonl\"\nretain = \"1min\"").unwrap();
        let line = |at: usize| format!("{{\"q\":\"query {at}\",\"gains\":{{\"k\":1}}}}\n");
        let text: String = (0..20).map(line).collect();
        std::fs::write(&judged, &text).unwrap();
        let policy: Policy = serde_json::from_str(&read(&plan).unwrap()).unwrap();
        assert_eq!(policy.judged, Judged::from(text.as_str()));
        let refused = |judged_text: &str, plan_text: &str| {
            std::fs::write(&judged, judged_text).unwrap();
            std::fs::write(&plan, plan_text).unwrap();
            crate::failure::line(&read(&plan).unwrap_err())
        };
        let named = "judged = \"judged.jsonl\"";
        let error = refused(&text.replace("query 7", "query 6"), named);
        assert!(error.contains("judged.jsonl: line 8: q: it is on line 7 too"), "{error}");
        assert!(refused("", named).contains("it is empty"));
        assert!(refused(&" ".repeat(MOST_BYTES + 1), named).contains("the limit is 1048576"));
        assert!(refused(&text, "judged = \"/dev/zero\"").contains("the limit is 1048576"));
        let endless = crate::failure::line(&read(Path::new("/dev/zero")).unwrap_err());
        assert!(endless.contains("/dev/zero: it has more than"), "{endless}");
        assert!(refused(&text, "judged = 3").contains("not the name of a file"));
        assert!(refused(&text, "bake = 3").contains("plan.toml is not a rollout plan: unknown field `bake`"));
        assert!(refused(&text, "max_unavailable = 0").contains("max_unavailable: 0 is not within"));
    }
}
