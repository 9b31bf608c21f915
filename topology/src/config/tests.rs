//! Every problem of a topology written by hand is found, named by its key, in one go.

use super::*;

pub(crate) fn node(id: &str, role: Role, port: u16) -> NodeConfig {
    let address = format!("127.0.0.1:{port}");
    NodeConfig::at(id, role, address)
}

pub(crate) fn placement(shards: &[&str], replicas: &[&str]) -> Placement {
    let names = |list: &[&str]| list.iter().map(ToString::to_string).collect();
    Placement { corpus: "web".into(), shards: names(shards), replicas: names(replicas), version: 0 }
}

fn sound() -> TopologyConfig {
    TopologyConfig {
        nodes: vec![
            node("root", Role::Root, 7000),
            node("agg-1", Role::Aggregator, 7001),
            node("leaf-1", Role::Leaf, 7002),
            node("leaf-2", Role::Leaf, 7003),
        ],
        placements: vec![
            placement(&["main/0", "main/1"], &["leaf-1", "leaf-2"]),
            placement(&["news/0"], &["leaf-2"]),
        ],
        ..TopologyConfig::default()
    }
}

#[test]
fn a_sound_topology_has_no_problems() {
    assert_eq!(sound().problems(), []);
    assert_eq!(TopologyConfig::default().problems(), []);
    let encrypted = TopologyConfig {
        store: "etcd://h:1/p".into(),
        store_ca_file: "ca.pem".into(),
        store_cert_file: "c.pem".into(),
        store_key_file: "k.pem".into(),
        store_server_name: "etcd.example.org".into(),
        ..sound()
    };
    assert_eq!(encrypted.problems(), []);
}

#[test]
fn each_problem_is_found_under_its_key() {
    type Case = (fn(&mut TopologyConfig), &'static str, &'static str);
    let cases: &[Case] = &[
        (|t| t.nodes[0].id = "Root!".into(), "nodes[0].id", "not a name"),
        (|t| t.nodes[3].id = "leaf-1".into(), "nodes[3].id", "another node"),
        (|t| t.nodes[0].zone = "Zone A".into(), "nodes[0].zone", "not a name"),
        (|t| t.nodes[1].address = "here".into(), "nodes[1].address", "host:port"),
        (|t| t.nodes[1].address = "host:0".into(), "nodes[1].address", "1 to 65535"),
        (|t| t.nodes[1].address = "http://h:1/x:7".into(), "nodes[1].address", "host:port"),
        (|t| t.nodes[1].address = "127.0.0.1:7000".into(), "nodes[1].address", "\"root\" too"),
        (|t| t.nodes[1].admin = "127.0.0.1:7003".into(), "nodes[3].address", "\"agg-1\" too"),
        (|t| t.placements[0].corpus = "W b".into(), "placements[0].corpus", "not a name"),
        (|t| t.placements[0].shards.clear(), "placements[0].shards", "no shard"),
        (|t| t.placements[0].shards[1] = "main".into(), "placements[0].shards[1]", "GROUP/NUMBER"),
        (|t| t.placements[0].shards[1] = "main/1024".into(), "placements[0].shards[1]", "at most 1024"),
        (|t| t.placements[0].shards[1] = "main/0".into(), "placements[0].shards[1]", "already"),
        (|t| t.placements[1].shards[0] = "main/1".into(), "placements[1].shards[0]", "placements[0] already"),
        (|t| t.placements[1].replicas.clear(), "placements[1].replicas", "at least one"),
        (|t| t.placements[1].replicas[0] = "leaf-9".into(), "placements[1].replicas[0]", "no node"),
        (|t| t.placements[1].replicas[0] = "agg-1".into(), "placements[1].replicas[0]", "role aggregator"),
        (|t| t.placements[0].replicas[1] = "leaf-1".into(), "placements[0].replicas[1]", "twice"),
        (|t| t.store = "etcd://h:1".into(), "store", "names no prefix"),
        (|t| t.store_user = "canopy".into(), "store_user", "neither is"),
        (|t| t.store_cert_file = "c.pem".into(), "store_cert_file", "named together"),
        (|t| t.store_cert_file = "c.pem".into(), "store_cert_file", "name store_ca_file too"),
        (|t| t.store_server_name = "etcd".into(), "store_server_name", "name store_ca_file too"),
        (|t| t.store_ca_file = "ca.pem".into(), "store_ca_file", "the store is a file"),
        (|t| t.store_server_name = "a b".into(), "store_server_name", "not a host name"),
        (|t| t.store_lease = Time::ms(500), "store_lease", "outside 2s..1min"),
        (
            |t| t.nodes.extend([node("t-1", Role::Topology, 7010), node("t-2", Role::Topology, 7011)]),
            "store",
            "2 topology services can't share",
        ),
        (|t| t.placements[1].version = 7, "placements[1].version", "has version 0 elsewhere"),
    ];
    for (damage, key, words) in cases {
        let mut topology = sound();
        damage(&mut topology);
        let problems = topology.problems();
        let found = problems.iter().any(|(at, reason)| at == key && reason.contains(words));
        assert!(found, "{key} {words:?} not in {problems:?}");
    }
}

#[test]
fn all_problems_are_listed_at_once() {
    let mut topology = sound();
    topology.nodes[0].address = String::new();
    topology.placements[0].replicas = vec!["nobody".into(), "nobody".into()];
    topology.placements[1].shards.clear();
    assert_eq!(topology.problems().len(), 5, "{:?}", topology.problems());
}

#[test]
fn an_ingest_is_found_by_leaves_in_the_file_and_no_query_is_routed_to_it() {
    let mut topology = sound();
    topology.nodes.push(node("ingest-1", Role::Ingest, 7010));
    assert_eq!(topology.problems(), []);
    assert_eq!(topology.ingests(), ["127.0.0.1:7010"]);
    assert!(sound().ingests().is_empty());
    let routing = crate::routing::RoutingSnapshot::from_static(&topology).unwrap();
    assert_eq!(routing.nodes.len(), 4, "{:?}", routing.nodes);
    assert!(routing.nodes.values().all(|node| node.role.takes_queries()));
    assert_eq!(Role::parse("ingest"), Some(Role::Ingest));
    assert!(Role::Ingest.reads_versions() && !Role::Ingest.takes_queries());
}
