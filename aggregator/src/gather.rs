//! One search over many shards: branches, attempts, completion, coverage.

use std::sync::Arc;

use canopy_common::{error::Failure, ids::NodeId, request::RequestContext};
use canopy_proto::v1;
use canopy_topology::routing::RoutingSnapshot;

use crate::endpoints::Endpoints;

/// Why the engine stopped waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Every shard is settled.
    All,
    /// All but the allowed number are.
    AllBut,
    /// Enough coverage, and the share of time for stragglers is over.
    Adaptive,
    /// The deadline, less the reserve.
    Deadline,
    /// The caller left.
    Cancelled,
}

impl Decision {
    /// The word in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::AllBut => "all_but",
            Self::Adaptive => "adaptive",
            Self::Deadline | Self::Cancelled => "deadline",
        }
    }
}

/// What a search gathered.
#[derive(Debug, Clone, Default)]
pub struct Gathered {
    /// Best hits in result order, at most the largest k asked; `shard` indexes `request.shards`.
    pub hits: Vec<v1::Hit>,
    /// One reply per asked shard, in the order of `request.shards`; each has exactly one outcome. Facets and totals
    /// are per shard; sum them with [`crate::merge`].
    pub shards: Vec<v1::ShardReply>,
    /// Child (leaf or aggregator) that settled each shard, for fetch.
    pub children: Vec<Option<NodeId>>,
    /// Why it stopped.
    pub decision: Option<Decision>,
    /// Attempts, hedges, retries, of this level and below.
    pub tail: v1::TailReport,
    /// Timeline, when asked.
    pub spans: Vec<v1::Span>,
    /// Every candidate of some branch was ejected; the least bad was tried.
    pub panic: bool,
}

/// The engine. Shared; holds what outlives a query: endpoints, load, dice, policies.
pub struct Gatherer {
    endpoints: Arc<dyn Endpoints>,
}

impl Gatherer {
    /// Searches `request.shards` and returns by the context's deadline less the reserve. Never fails: what could not
    /// be had is an outcome.
    pub async fn search(
        &self,
        _context: &RequestContext,
        _routing: &Arc<RoutingSnapshot>,
        _request: Arc<v1::SearchRequest>,
    ) -> Gathered {
        let _ = &self.endpoints;
        todo!()
    }

    /// Fetches the page's hits: asks the child that settled each hit's shard, then another holder of the shard. The
    /// reply has one entry per item; those that stayed empty say why.
    pub async fn fetch(
        &self,
        _context: &RequestContext,
        _routing: &Arc<RoutingSnapshot>,
        _request: v1::FetchRequest,
        _children: &[Option<NodeId>],
    ) -> Result<v1::FetchReply, Failure> {
        todo!()
    }
}
