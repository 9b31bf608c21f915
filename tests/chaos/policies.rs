//! Settings of the engine for one corpus, and the hedge of one request: where they hold, who may use them, and what the
//! log says of a change.

use std::time::Duration;

use canopy_common::config::Time;
use canopy_tests::{
    api::Api,
    cluster::Shape,
    process::{Fleet, Signal},
    wait::wait_for,
};

use crate::stage::{self, SHARDS};

const PATIENCE: Duration = Duration::from_mins(1);
/// Every search of a leaf takes at least this long, so that a hedge after a millisecond is always sent.
const SLOW: Time = Time::ms(20);

async fn reload(fleet: &mut Fleet, nodes: &[&str], text: &str, words: &str) {
    let file = fleet.config_file();
    std::fs::write(&file, text).expect("written");
    for node in nodes {
        let before = fleet.log(node).matches(words).count();
        fleet.signal(node, Signal::Hangup);
        wait_for(words, PATIENCE, || {
            let heard = fleet.log(node).matches(words).count() > before;
            async move { heard.then_some(()) }
        })
        .await;
    }
}

/// Hedges that twenty queries sent, at all levels.
async fn hedges(root: &Api, asked: &[(&str, &str)]) -> u64 {
    let mut hedges = 0;
    for _ in 0..20 {
        let asked = [&[("q", "river garden"), ("timeout_ms", "20000"), ("snippet", "false")], asked].concat();
        let answered = root.search("web", &asked).await.ok();
        hedges += answered.json["tail"]["hedges"].as_u64().unwrap_or(0);
    }
    hedges
}

#[test]
fn a_corpus_has_settings_of_its_own_at_every_level_while_they_run() {
    stage::run(|stage| async move {
        let mut fleet =
            Fleet::start(&stage.store(), &Shape::two_levels(4, 2), &[("web", SHARDS)], |config| {
                config.gather.fanout_max = 2;
                config.gather.hedge = canopy_aggregator::hedge::HedgeMode::Off;
                config.leaf.allow_faults = true;
                config.leaf.fault.delay = SLOW;
            })
            .await;
        let (root, nodes) = (fleet.root(), ["root-0", "aggregator-0", "aggregator-1"]);
        assert_eq!(hedges(&root, &[]).await, 0);
        let base = std::fs::read_to_string(fleet.config_file()).expect("a configuration");

        let own = "[gather.corpora.web]\nhedge = \"delay:1\"\nextra_work = 1.0\n";
        reload(&mut fleet, &nodes, &format!("{base}\n{own}"), "configuration read again").await;
        assert!(hedges(&root, &[]).await >= 10);
        // What a request says itself goes first.
        assert_eq!(hedges(&root, &[("hedge", "off")]).await, 0);
        for node in nodes {
            let log = fleet.log(node);
            for key in ["gather.corpora.web.hedge", "gather.corpora.web.extra_work"] {
                let line =
                    log.lines().find(|line| line.contains(key)).unwrap_or_else(|| panic!("{key}: {log}"));
                assert!(line.contains("setting reloaded") && line.contains("(not set)"), "{line}");
            }
            let status = fleet.admin(node).get("/status").await.ok().json;
            assert_eq!(
                (&status["hedging"]["mode"], &status["policies"]["web"]["hedge"]),
                (&"off".into(), &"delay:1".into()),
                "{status}"
            );
        }

        let wrong = "[gather.corpora.web]\nhedge = \"delay:1\"\nextra_work = 7.0\npick = \"random\"\n";
        reload(&mut fleet, &nodes, &format!("{base}\n{wrong}"), "the configuration was not reloaded").await;
        for key in ["gather.corpora.web.extra_work", "gather.corpora.web.pick"] {
            assert!(fleet.log("root-0").contains(key), "{key}: {}", fleet.log("root-0"));
        }
        assert!(hedges(&root, &[]).await >= 10, "a configuration with problems changes nothing");

        reload(&mut fleet, &nodes, &base, "configuration read again").await;
        assert_eq!(hedges(&root, &[]).await, 0);
    });
}

#[test]
fn modes_that_multiply_the_load_are_for_operators() {
    stage::run(|stage| async move {
        let mut fleet = Fleet::start(&stage.store(), &Shape::flat(4, 2), &[("web", SHARDS)], |config| {
            config.leaf.allow_faults = true;
            config.leaf.fault.delay = SLOW;
        })
        .await;
        let root = fleet.root();
        for mode in ["factor:2", "tied", "delay:1", "quantile:0.9"] {
            let refused = root.search("web", &[("q", "river"), ("hedge", mode)]).await;
            let message = refused.refused(400, "FAILED_PRECONDITION", "hedge");
            assert!(message.contains("operator_parameters"), "{message}");
        }
        fleet.signal("root-0", Signal::Kill);
        fleet.ended("root-0").await;
        fleet.spawn("root-0", &["root.operator_parameters=true".to_owned()]);
        fleet.wait_ready("root-0").await;
        assert_eq!(hedges(&root, &[("hedge", "factor:2")]).await, 20 * u64::from(SHARDS));
        assert_eq!(hedges(&root, &[("hedge", "off")]).await, 0);
    });
}
