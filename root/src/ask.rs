//! One pass of a query: read, plan, gather, judge, fetch, page, of the version it is pinned to.
//!
//! Nothing of a pass leaves it but its page: when the version is lost on the way, before or after its hits were found, the pass
//! says so and another one begins from the text of the query.

use std::sync::Arc;

use canopy_aggregator::gather::Gathered;
use canopy_common::{deadline::Deadline, ids::AttemptId, request::RequestContext};
use canopy_proto::v1;

use crate::{
    account,
    answer::{Answer, Warning},
    error::{Error, Result},
    fetch,
    ladder::Step,
    page::{self, Sheet},
    pin::Pinned,
    plan,
    request::Wanted,
    search::{Asked, Root, Trail},
    versions::CorpusState,
};

/// What came of a pass.
pub enum Got {
    /// The page.
    Answer(Box<Answer>),
    /// Its version can't answer it whole; another one may. Why, from a closed list.
    Lost(&'static str),
}

impl Root {
    /// Asks what a query is pinned to.
    pub(crate) async fn ask(
        &self,
        asked: &Asked,
        trail: &mut Trail,
        step: Step,
        pinned: &Pinned,
    ) -> Result<Got> {
        let corpus = &pinned.corpus;
        let mut wanted = Wanted::check(&asked.request, corpus, &self.config)?;
        let spared = step >= Step::Spare && std::mem::take(&mut wanted.snippet);
        let context = context(asked, &wanted)?;
        let _stop_when_dropped = context.cancel.clone().drop_guard();
        let now_us = self.clock.now_us();
        let mut parsed = self.reader.read(&asked.request, corpus, context.deadline, now_us).await?;
        if step == Step::Whole {
            self.reader.suggest(&mut parsed, &asked.request, corpus, context.deadline, now_us).await;
        }
        let (nothing, truncated) = (parsed.finds_nothing(), parsed.expansion_truncated);
        let repinned = trail.repinned.as_ref().and_then(|repinned| repinned.warning(corpus));
        let warnings = parsed.warnings.iter().map(Warning::from).chain(repinned).collect();
        let request = Arc::new(plan::search(asked.query, &wanted, parsed, pinned));
        trail.timeline.end("parse");

        trail.gathered = self.gather(&context, pinned, &request, nothing, trail.spent).await?;
        trail.timeline.end("search");
        if let Some(why) = pinned.lost(&trail.gathered) {
            return Ok(Got::Lost(why));
        }

        let coverage = account::of(corpus, &trail.gathered);
        if !trail.own {
            self.degradation.searched(coverage.shed, coverage.shards_asked);
        }
        account::judge(&coverage, &trail.gathered, wanted.min_coverage)?;
        let hits = plan::page(std::mem::take(&mut trail.gathered.hits), &wanted);
        let documents = fetch::documents(self, pinned, &context, &request, &wanted, &hits, trail).await;
        trail.timeline.end("fetch");
        if self.unfetched(pinned, &context, asked, &documents) {
            return Ok(Got::Lost("unfetched"));
        }

        let sheet = Sheet {
            asked,
            wanted: &wanted,
            corpus,
            request: &request,
            coverage: &coverage,
            truncated,
            spared,
            nothing,
            warnings,
        };
        let mut answer = page::assemble(&sheet, &trail.gathered, &hits, &documents);
        trail.timeline.end("page");
        if wanted.trace {
            answer.trace = Some(crate::timeline::trace(&self.node, &trail.timeline, &trail.gathered));
        }
        answer.took_ms = trail.timeline.took_ms();
        Ok(Got::Answer(answer.into()))
    }

    /// Whether a query can be asked of a version, by what it says.
    pub(crate) async fn reads(&self, asked: &Asked, corpus: &Arc<CorpusState>) -> bool {
        let Ok(wanted) = Wanted::check(&asked.request, corpus, &self.config) else { return false };
        let Ok(context) = context(asked, &wanted) else { return false };
        self.reader.read(&asked.request, corpus, context.deadline, self.clock.now_us()).await.is_ok()
    }

    /// Searches, whole or not at all where another version may do better. `spent`: by an earlier pass.
    async fn gather(
        &self,
        context: &RequestContext,
        pinned: &Pinned,
        request: &Arc<v1::SearchRequest>,
        nothing: bool,
        spent: v1::TailReport,
    ) -> Result<Gathered> {
        if nothing {
            return Ok(account::nothing_to_find(request));
        }
        if let Some(canary) = &self.canary {
            let draw = self.dice.next_u64();
            canary.pass(&self.gatherer, context, &pinned.routing, request, draw).await?;
        }
        let (gatherer, routing) = (&self.gatherer, &pinned.routing);
        let mut gathered = match pinned.other {
            Some(_) => gatherer.search_whole(context, routing, request.clone()).await,
            None => gatherer.search(context, routing, request.clone()).await,
        };
        let tail = &mut gathered.tail;
        tail.attempts += spent.attempts;
        tail.hedges += spent.hedges;
        tail.hedges_won += spent.hedges_won;
        tail.retries += spent.retries;
        tail.budget_denied += spent.budget_denied;
        Ok(gathered)
    }
}

fn context(asked: &Asked, wanted: &Wanted) -> Result<RequestContext> {
    let budget = asked.limit.map_or(wanted.timeout, |limit| limit.min(wanted.timeout));
    let deadline = Deadline::at(asked.arrival + budget);
    if deadline.expired() {
        return Err(Error::TooLate(budget.as_millis() as u64));
    }
    let context = RequestContext::new(asked.query, AttemptId(0), deadline);
    Ok(RequestContext { priority: wanted.priority, ..context })
}
