//! Telling a twin: leaf to leaf, over a channel that is dialled when it is first needed and kept.
//!
//! A claim is worth something for a moment only: it is sent once, has little time, and so many at most are on their way;
//! what can't be told costs a second search at the other leaf and is counted.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use canopy_common::{
    ids::NodeId,
    net::NetIo,
    rpc::{self, ClientChannel, RpcConfig},
};
use canopy_proto::{SearchNode, client::NodeClient, v1::CancelRequest};
use canopy_topology::{config::Role, routing::Routing};
use parking_lot::Mutex;
use prometheus::IntCounter;
use tokio::{runtime::Handle, sync::Semaphore};

/// How long a claim may take.
const PATIENCE: Duration = Duration::from_millis(200);
/// Claims on their way at most.
const MOST: usize = 256;

/// Sends a claim to a node; returns at once. Tests put something else in its place.
pub type Tell = Box<dyn Fn(&NodeId, CancelRequest) + Send + Sync>;

/// A twin and where its channel leads.
struct Peer {
    address: String,
    client: NodeClient<ClientChannel>,
}

/// The other leaves.
struct Peers {
    rpc: RpcConfig,
    net: NetIo,
    routing: Routing,
    runtime: Handle,
    places: Arc<Semaphore>,
    known: Mutex<BTreeMap<NodeId, Peer>>,
    untold: IntCounter,
}

impl Peers {
    fn get(&self, node: &NodeId) -> Option<NodeClient<ClientChannel>> {
        let routing = self.routing.now();
        let leaf = routing.nodes.get(node).filter(|node| node.role == Role::Leaf)?;
        let mut known = self.known.lock();
        if let Some(peer) = known.get(node).filter(|peer| peer.address == leaf.address) {
            return Some(peer.client.clone());
        }
        let channel = rpc::channel(&self.rpc, &self.net, &leaf.address).ok()?;
        let client = NodeClient::new(channel, self.rpc.max_message.0 as usize);
        known.insert(node.clone(), Peer { address: leaf.address.clone(), client: client.clone() });
        Some(client)
    }

    fn tell(&self, node: &NodeId, claim: CancelRequest) {
        let runtime = self.runtime.enter();
        let (Some(peer), Ok(place)) = (self.get(node), self.places.clone().try_acquire_owned()) else {
            self.untold.inc();
            return;
        };
        let untold = self.untold.clone();
        self.runtime.spawn(async move {
            let _place = place;
            let told = tokio::time::timeout(PATIENCE, peer.cancel(claim)).await;
            if !matches!(told, Ok(Ok(_))) {
                untold.inc();
            }
        });
        drop(runtime);
    }
}

/// Tells the leaves of `routing`; to be made inside the runtime. `untold` counts what did not arrive.
pub fn tell(rpc: &RpcConfig, net: &NetIo, routing: &Routing, untold: IntCounter) -> Tell {
    let peers = Peers {
        rpc: rpc.clone(),
        net: net.clone(),
        routing: routing.clone(),
        runtime: Handle::current(),
        places: Arc::new(Semaphore::new(MOST)),
        known: Mutex::default(),
        untold,
    };
    Box::new(move |node, claim| peers.tell(node, claim))
}
