//! Numbers of this root for Prometheus. Labels are closed lists: phase, outcome, reason. What the engine counts is
//! registered beside them by the engine.

use canopy_common::{
    limit::{AdmissionMetrics, Gate, Refusal},
    telemetry::{
        Telemetry,
        metrics::{LATENCY, counters, gauge, latency},
    },
};
use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounterVec, IntGauge};

use crate::{
    answer::Answer,
    error::{Error, Result},
    ladder::Step,
    timeline::Timeline,
};

mod newest;

use newest::Newest;

/// The metrics.
#[derive(Clone)]
pub struct Metrics {
    query: Histogram,
    phase: HistogramVec,
    answers: IntCounterVec,
    coverage: Histogram,
    degraded: IntCounterVec,
    /// How far answers are behind the log.
    pub(crate) newest: Newest,
    in_flight: IntGauge,
    /// Newest versions that can't be served, older ones are.
    pub(crate) passed_over: IntGauge,
    step: IntGauge,
    waiting: IntGauge,
    admission: AdmissionMetrics,
    /// Queries whose version could not answer them whole, so that another one did.
    pub(crate) repinned: IntCounterVec,
}

/// Counts a query as running; one that is dropped before its end was cancelled by its client.
pub struct Running(Option<Metrics>);

impl Metrics {
    /// Registers them.
    pub fn new(telemetry: &Telemetry) -> Self {
        let registry = &telemetry.registry;
        let shares = vec![0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1.0];
        let coverage =
            HistogramOpts::new("canopy_root_coverage_ratio", "share of the documents that an answer covers");
        let phase = HistogramOpts::new("canopy_root_phase_seconds", "time per phase of a query")
            .buckets(LATENCY.to_vec());
        let new = Self {
            query: latency(
                registry,
                "canopy_root_query_seconds",
                "time from a query's arrival to its answer",
            ),
            phase: HistogramVec::new(phase, &["phase"]).expect("metric names are literals"),
            answers: counters(
                registry,
                "canopy_root_answers_total",
                "queries by what came of them",
                "outcome",
            ),
            coverage: Histogram::with_opts(coverage.buckets(shares)).expect("metric names are literals"),
            degraded: counters(registry, "canopy_root_degraded_total", "answers by what was cut", "reason"),
            newest: Newest::new(registry),
            in_flight: gauge(registry, "canopy_root_in_flight", "queries that run now"),
            passed_over: gauge(
                registry,
                "canopy_root_versions_passed_over",
                "versions newer than the one served, which can't be served; above 0 wants a look",
            ),
            step: gauge(
                registry,
                "canopy_root_degradation_step",
                "0: whole answers; 1: no snippets; 2: no batch queries either",
            ),
            waiting: gauge(registry, "canopy_root_waiting", "queries that wait for one to end"),
            admission: AdmissionMetrics::new("root", registry),
            repinned: counters(
                registry,
                "canopy_root_repinned_total",
                "queries whose version could not answer them whole, or refused them alone, and that were asked again; control: of their own version",
                "reason",
            ),
        };
        for metric in [
            Box::new(new.phase.clone()) as Box<dyn prometheus::core::Collector>,
            Box::new(new.coverage.clone()),
        ] {
            if let Err(error) = registry.register(metric) {
                tracing::error!(%error, "a metric could not be registered");
            }
        }
        new
    }

    /// A query begins.
    pub fn running(&self) -> Running {
        self.in_flight.inc();
        Running(Some(self.clone()))
    }

    /// A query was let in, or not.
    pub fn entered(&self, gate: &Gate, entered: std::result::Result<Step, Refusal>) {
        self.admission.seen(gate.admission());
        self.waiting.set(gate.waiting() as i64);
        match entered {
            Ok(step) => self.step.set(step as i64),
            Err(refusal) => self.admission.refused(refusal),
        }
    }

    fn answered(&self, answer: &Answer) {
        let outcome = if answer.coverage.complete { "complete" } else { "partial" };
        self.answers.with_label_values(&[outcome]).inc();
        self.coverage.observe(answer.coverage.documents.ratio);
        self.newest.answered(answer);
        for reason in &answer.degraded {
            self.degraded.with_label_values(&[*reason]).inc();
        }
    }
}

/// The word for an error, from a closed list.
fn outcome(error: &Error) -> &'static str {
    match error {
        Error::UnderCoverage { .. } => "under_coverage",
        Error::NothingAnswered { .. } => "nothing_answered",
        Error::Busy(_) => "shed",
        Error::Deadly => "deadly",
        Error::NotOpen { .. } => "not_open",
        Error::TooLate(_) => "too_late",
        Error::Version(_) | Error::Io { .. } => "error",
        Error::Refused(_) | Error::UnknownCorpus(_) | Error::CursorExpired(_) => "refused",
    }
}

impl Running {
    /// The query ended.
    pub fn ended(mut self, timeline: &Timeline, result: &Result<Answer>) {
        let Some(metrics) = self.0.take() else { return };
        metrics.in_flight.dec();
        match result {
            Ok(answer) => metrics.answered(answer),
            Err(error) => {
                metrics.answers.with_label_values(&[outcome(error)]).inc();
                if let Some(report) = error.report() {
                    metrics.coverage.observe(report.documents.ratio);
                }
            }
        }
        metrics.query.observe(timeline.took_ms() / 1000.0);
        for (phase, seconds) in timeline.seconds() {
            metrics.phase.with_label_values(&[phase]).observe(seconds);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(metrics) = self.0.take() {
            metrics.in_flight.dec();
            metrics.answers.with_label_values(&["cancelled"]).inc();
        }
    }
}
