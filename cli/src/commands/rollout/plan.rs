//! Plans of rollouts: read from a file with their judged queries, checked before anything is sent, and printed when they are tried
//! dry. Errors name file, line and field.

use std::{io::ErrorKind, path::Path};

use anyhow::{Context, Result, anyhow};
use canopy_common::{bounded, config::Checked};
use canopy_topology::{
    gates::judged::{Judged, MOST_BYTES},
    rollout::Policy,
};
use serde_json::Value;

use crate::{failure, say::say, show::bytes};

/// A plan as the service reads it: its `judged` names a file, whose text takes the name's place.
pub fn read(file: &Path) -> Result<String> {
    let not_a_plan = || format!("{} is not a rollout plan", file.display());
    let text = bounded::text(file, bounded::MOST_SETTINGS).with_context(|| file.display().to_string())?;
    let mut plan: toml::Table = toml::from_str(&text).with_context(not_a_plan)?;
    let judged = plan.remove("judged").map(|name| match name.as_str() {
        Some(name) => read_judged(&file.with_file_name(name)),
        None => Err(anyhow!("it is not the name of a file; write it in quotes")),
    });
    let (judged, unread) = match judged {
        Some(Ok(judged)) => (judged, None),
        Some(Err(error)) => (Judged::default(), Some(("judged".to_owned(), failure::line(&error)))),
        None => (Judged::default(), None),
    };
    let with_judged = |policy: &Policy| Policy { judged: judged.clone(), ..policy.clone() };
    let mut read = Checked::<Policy>::of(plan, |policy| with_judged(policy).problems());
    read.misread.extend(unread);
    match read.value.take() {
        Some(policy) if read.misread.is_empty() && read.beyond.is_empty() => {
            Ok(serde_json::to_string(&with_judged(&policy))?)
        }
        _ => Err(refused(&read.problems()).context(not_a_plan())),
    }
}

/// All that is wrong: one problem in the line, several each on its own.
fn refused(problems: &[(String, String)]) -> anyhow::Error {
    let lines: Vec<String> = problems.iter().map(|(key, reason)| format!("{key}: {reason}")).collect();
    match lines.as_slice() {
        [only] => anyhow!("{only}"),
        lines => anyhow!("it has {} problems:\n  {}", lines.len(), lines.join("\n  ")),
    }
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
        assert!(
            refused(&text, "bake = 3")
                .contains("plan.toml is not a rollout plan: bake: unknown field `bake`")
        );
        assert!(refused(&text, "max_unavailable = 0").contains("max_unavailable: 0 is not within"));
    }

    #[test]
    fn all_problems_of_a_plan_are_told_with_their_steps() {
        let directory = tempfile::tempdir().unwrap();
        let plan = directory.path().join("plan.toml");
        let step = |percent: &str, more: &str| format!("[[steps]]\npercent = {percent}\n{more}\n");
        let steps = [
            step("0", "bake = '1s'\nsample = -3"),
            step("150", "bake = 3\nsample = 99"),
            step("300", "bake = '1s'"),
            step("50", "bake = '1s'\nsample = 0\nlenght = 1"),
            step("10", "bake = '1s'\nsample = 0"),
        ];
        let text = format!("judged = 'none.jsonl'\nmax_unavailable = 0\nretain = '1d'\n{}", steps.concat());
        std::fs::write(&plan, text).unwrap();
        let told = crate::failure::line(&read(&plan).unwrap_err());
        for part in [
            "plan.toml is not a rollout plan: it has 12 problems:\n",
            "  steps[0].sample: invalid value: integer `-3`, expected a whole number, 0 or more\n",
            "  steps[1].percent: 150 is no share of queries; write 1 to 100",
            "  steps[1].bake: 3 has no unit",
            "  steps[1].sample: 99 queries tell nothing",
            "  steps[2].percent: 300 is no share of queries",
            "  steps[2].sample: it is missing",
            "  steps[3].lenght: unknown field",
            "  steps[4].percent: 10 follows 50; shares have to grow",
            "  steps: the last step is 10 %; end with percent = 100",
            "  retain: \"1d\": \"d\" is no unit",
            "  max_unavailable: 0 is not within 1 to 64",
            "  judged: ",
        ] {
            assert!(told.contains(part), "{part} in\n{told}");
        }
    }
}
