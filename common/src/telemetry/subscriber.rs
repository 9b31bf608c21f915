//! Installs the process' log subscriber: text or JSON on stderr, and spans to OTLP when an endpoint is configured.

use std::io::IsTerminal;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::{
    Resource,
    trace::{Sampler, SdkTracerProvider},
};
use tracing_subscriber::{
    EnvFilter, Layer, Registry,
    filter::{LevelFilter, Targets},
    layer::SubscriberExt,
    registry::LookupSpan,
    util::SubscriberInitExt,
};

use super::config::{LogFormat, TelemetryConfig};

/// Sends what is left of the traces when dropped.
#[must_use = "traces are flushed when this is dropped"]
pub struct Exporting(Option<SdkTracerProvider>);

impl Drop for Exporting {
    fn drop(&mut self) {
        if let Some(provider) = self.0.take() {
            let _best_effort = provider.shutdown();
        }
    }
}

/// Installs logs and traces for `service` (the role's name). Call once, inside a runtime.
pub fn init(config: &TelemetryConfig, service: &str) -> Result<Exporting, String> {
    let filter: EnvFilter = config.log.parse().map_err(|e| format!("telemetry.log: {e}"))?;
    let provider = exporter(config, service)?;
    let traces = provider.as_ref().map(traces);
    let lines: Box<dyn Layer<Registry> + Send + Sync> = match config.log_format {
        LogFormat::Text => Box::new(
            tracing_subscriber::fmt::layer()
                .with_writer(std::io::stderr)
                // It says so with a macro that panics when nobody reads any more.
                .log_internal_errors(false)
                .with_ansi(std::io::stderr().is_terminal())
                .with_filter(filter),
        ),
        LogFormat::Json => {
            let layer = tracing_subscriber::fmt::layer().json().log_internal_errors(false);
            Box::new(layer.with_writer(std::io::stderr).with_filter(filter))
        }
    };
    let installed = tracing_subscriber::registry().with(lines).with(traces).try_init();
    installed.map_err(|e| format!("logs are installed twice: {e}"))?;
    Ok(Exporting(provider))
}

/// The layer that turns spans into traces: ours only. Unfiltered, it would switch on every span of the transport below,
/// some for each frame.
pub fn traces<S>(provider: &SdkTracerProvider) -> impl Layer<S> + use<S>
where
    S: tracing::Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
{
    let ours = Targets::new().with_target("canopy", LevelFilter::DEBUG);
    tracing_opentelemetry::layer().with_tracer(provider.tracer("canopy")).with_filter(ours)
}

fn exporter(config: &TelemetryConfig, service: &str) -> Result<Option<SdkTracerProvider>, String> {
    if config.otlp_endpoint.is_empty() {
        return Ok(None);
    }
    let exporter = SpanExporter::builder()
        .with_tonic()
        .with_endpoint(&config.otlp_endpoint)
        .build()
        .map_err(|e| format!("telemetry.otlp_endpoint: {e}"))?;
    let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(config.trace_share)));
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_sampler(sampler)
        .with_resource(Resource::builder().with_service_name(service.to_owned()).build())
        .build();
    Ok(Some(provider))
}
