//! What operators do in a hurry, with real processes and under load: versions one after the other, two people at once, back from
//! any point, back to what is no more. No query fails, each is answered by one version, and each version ends visibly.

use std::time::Duration;

use canopy_common::{
    ids::Version,
    net::NetIo,
    rpc::{self, ClientChannel, RpcConfig},
};
use canopy_proto::{
    topology::{
        AbortRollout, CommandReply, CommandRequest, PauseRollout, Rollback, StartRollout,
        command_request::Command,
    },
    topology_peer::TopologyPeer,
};
use canopy_tests::wait::{wait_for, wait_until};
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    load::{Load, Told, after_the_first, pass},
    served::{PATIENCE, Served, publish, store, version},
    stage::{self, EVERY},
};

const QUICK: &str = r#"
retain = "10min"
grace = "3s"
steps = [
    { percent = 1, bake = "300ms", sample = 0 },
    { percent = 50, bake = "500ms", sample = 0 },
    { percent = 100, bake = "300ms", sample = 0 },
]
"#;
/// One that nobody sees the end of: it stays in the step that is looked for.
const SLOW: &str = r#"
retain = "10min"
grace = "1s"
steps = [
    { percent = 50, bake = "10min", sample = 0 },
    { percent = 100, bake = "300ms", sample = 0 },
]
"#;
/// Bound of the way back; the machine of these tests does other things too.
const BACK: Duration = Duration::from_secs(15);

const PARAMETERS: [(&str, &str); 2] = [EVERY, ("timeout_ms", "20000")];

/// Commands without a process for each.
struct Desk(TopologyPeer<ClientChannel>);

impl Desk {
    fn of(served: &Served) -> Self {
        let address = &served.fleet.node("topology-0").address;
        Self(TopologyPeer::new(
            rpc::channel(&RpcConfig::default(), &NetIo::tcp(), address).expect("an address"),
        ))
    }

    async fn tell(&self, by: &str, command: Command) -> Result<CommandReply, String> {
        let request =
            CommandRequest { by: by.to_owned(), command: Some(command), ..CommandRequest::default() };
        self.0.command(request, None).await.map_err(|status| status.message().to_owned())
    }

    async fn start(&self, by: &str, to: Version, plan: &str) -> Result<CommandReply, String> {
        let policy: toml::Table = toml::from_str(plan).expect("a plan");
        let policy = serde_json::to_string(&policy).expect("JSON");
        let start = StartRollout { corpus: "web".into(), version: to.0, policy, ..StartRollout::default() };
        self.tell(by, Command::Start(start)).await
    }

    async fn back(&self, by: &str) -> Result<CommandReply, String> {
        let back = Rollback { corpus: "web".into(), reason: "a test".into(), ..Rollback::default() };
        self.tell(by, Command::Rollback(back)).await
    }
}

/// How each version ended, newest last.
async fn ended(served: &Served) -> Vec<(u64, String)> {
    let corpus = served.corpus().await;
    let ended = corpus["ended"].as_array().into_iter().flatten().rev();
    let one = |it: &Value| (it["to"].as_u64().unwrap_or(0), it["outcome"].as_str().unwrap_or("?").to_owned());
    ended.map(one).collect()
}

/// Answers of a load are all whole, each of one version, and none of `old` to what was sent after the first answer of `new`.
async fn turns(load: Load, old: Version, new: Version) {
    let told = load.told().await;
    let of = |told: &Told| version(told.answered.as_ref()).0;
    let all: Vec<u64> = told.iter().map(of).collect();
    assert_eq!(all[0], old.0);
    let later = after_the_first(&told, |told| of(told) == new.0);
    assert!(later.into_iter().all(|told| of(told) != old.0), "no query goes to it any more");
}

/// Waits until the root answers by a version, so many times in a row.
async fn answers_by(served: &Served, wanted: Version, times: usize) {
    wait_for("answers of the version", PATIENCE, || async {
        for _ in 0..times {
            let answer = served.fleet.root().search("web", &PARAMETERS).await;
            if answer.json["version"]["wanted"].as_u64() != Some(wanted.0) {
                return None;
            }
        }
        Some(())
    })
    .await;
}

#[test]
fn versions_published_at_once_two_people_and_the_way_back_from_everywhere() {
    stage::run(|stage| async move {
        let (directory, store) = store(stage, "hurried");
        let one = store.latest("web").await.expect("a version").version;
        let mut served = Served::start(&directory, QUICK).await;
        served.first(one).await;
        let desk = Desk::of(&served);
        let mut next = Vec::new();
        for seed in 0..3 {
            next.push(publish(&directory, &store, 20 + seed, 700).await);
        }
        let [two, three, four] = [next[0], next[1], next[2]];
        let load = Load::start(served.fleet.root(), Duration::from_millis(20), &PARAMETERS);
        published_at_once(&served, &desk, [one, two, three, four]).await;
        // By all queries, not only by the half that a step gives it.
        answers_by(&served, four, 20).await;
        pass(Duration::from_millis(300)).await;
        let seen: Vec<u64> = load.finish().await.iter().map(|answer| version(answer.as_ref()).0).collect();
        assert_eq!((seen[0], seen[seen.len() - 1]), (one.0, four.0));

        let load = Load::start(served.fleet.root(), Duration::from_millis(10), &PARAMETERS);
        let begun = Instant::now();
        desk.back("ann").await.expect("it is held");
        assert!(!desk.back("ann").await.expect("a word").done.is_empty(), "said twice it says so");
        answers_by(&served, one, 1).await;
        let took = begun.elapsed();
        println!("first answer of the old version {took:?} after the command");
        assert!(took <= BACK, "{took:?}");
        served.quiet().await;
        let again = desk.back("ann").await.expect_err("it would be forward again");
        assert!(again.contains("--to"), "{again}");

        two_people(&served, &desk, two).await;
        back_from_a_canary_and_a_warm_up(&served, &desk, [two, three]).await;
        turns(load, four, one).await;
        back_to_what_is_gone(&served, [one, two, three, four]).await;
    });
}

async fn published_at_once(served: &Served, desk: &Desk, [one, two, three, four]: [Version; 4]) {
    let begun = Instant::now();
    for version in [two, three, four] {
        desk.start("ann", version, QUICK).await.expect("taken");
    }
    println!("three versions in {:?}", begun.elapsed());
    served.all_on(four).await;
    let want = |version: Version, outcome: &str| (version.0, outcome.to_owned());
    let visible = [want(one, "serving"), want(two, "superseded"), want(three, "superseded")];
    assert_eq!(ended(served).await, visible);
    let corpus = served.corpus().await;
    wait_until("it to be live", PATIENCE, (four.0, "retain".to_owned()), || async {
        let corpus = served.corpus().await;
        let state = corpus["rollout"]["state"].as_str().unwrap_or_default().to_owned();
        (corpus["live"].as_u64().unwrap_or(0), state)
    })
    .await;
    assert_eq!(corpus["rollout"]["to"].as_u64(), Some(four.0));
}

/// Each is answered, both are in the audit log, and one of the two orders is what is done.
async fn two_people(served: &Served, desk: &Desk, two: Version) {
    desk.start("ann", two, SLOW).await.expect("taken");
    let pause = Command::Pause(PauseRollout { corpus: "web".into() });
    let abort = Command::Abort(AbortRollout { corpus: "web".into(), waiting: false });
    let (paused, aborted) = tokio::join!(desk.tell("ann", pause), desk.tell("bob", abort));
    aborted.expect("there is one to abort");
    if let Err(reason) = paused {
        assert!(
            reason.contains("no rollout is under way") || reason.contains("being rolled back"),
            "{reason}"
        );
    }
    served.quiet().await;
    assert_eq!(ended(served).await.last().map(|it| it.1.clone()), Some("aborted".to_owned()));
    let audit = served.command(&["topology", "audit"]).await;
    assert!(audit.contains("ann starts a rollout") && audit.contains("aborted by bob"), "{audit}");
}

async fn back_from_a_canary_and_a_warm_up(served: &Served, desk: &Desk, [two, three]: [Version; 2]) {
    // While it loads: it never answered.
    desk.start("ann", three, SLOW).await.expect("taken");
    desk.back("bob").await.expect("it is under way");
    served.quiet().await;
    assert_eq!(ended(served).await.last(), Some(&(three.0, "rolled back".to_owned())));
    // While it has half of the queries.
    desk.start("ann", two, SLOW).await.expect("taken");
    wait_for("half of the queries", PATIENCE, || async {
        let pins = served.corpus().await["pins"].clone();
        (pins[0]["share"] == 5_000).then_some(())
    })
    .await;
    desk.back("bob").await.expect("it is under way");
    served.quiet().await;
    assert_eq!(ended(served).await.last(), Some(&(two.0, "rolled back".to_owned())));
    pass(Duration::from_millis(300)).await;
}

async fn back_to_what_is_gone(served: &Served, [one, two, three, four]: [Version; 4]) {
    let gone = served
        .command(&["index", "gc", "--corpus", "web", "--keep", "1", "--store-config", served.config()])
        .await;
    assert!(
        !gone.contains(&format!("removed {one} ")) && !gone.contains(&format!("removed {four} ")),
        "{gone}"
    );
    assert!(
        gone.contains(&format!("removed {two} ")) && gone.contains(&format!("removed {three} ")),
        "{gone}"
    );
    for arguments in [
        &["rollback", "--corpus", "web", "--to", &two.0.to_string()][..],
        &["rollout", "start", "--corpus", "web", "--version", &three.0.to_string()],
    ] {
        let (ok, text) = served.try_command(arguments).await;
        assert!(!ok && text.contains("is not in the store") && text.contains(&one.to_string()), "{text}");
    }
    let live = one.0.to_string();
    let dry = ["rollout", "start", "--corpus", "web", "--version", &live, "--dry-run"];
    let (ok, text) = served.try_command(&dry).await;
    assert!(!ok && text.contains("it would be refused: v1 is live already"), "{text}");
    served.all_on(one).await;
}
