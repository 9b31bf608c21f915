//! One trace per query through every hop: W3C `traceparent` over HTTP and gRPC, both ways.

use http::HeaderMap;
use opentelemetry::{
    Context,
    propagation::{Extractor, Injector, TextMapPropagator},
    trace::TraceContextExt,
};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).and_then(|value| value.to_str().ok())
    }
    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(http::HeaderName::as_str).collect()
    }
}

struct HeadersMut<'a>(&'a mut HeaderMap);

impl Injector for HeadersMut<'_> {
    fn set(&mut self, key: &str, value: String) {
        if let (Ok(name), Ok(value)) = (http::HeaderName::try_from(key), http::HeaderValue::try_from(value)) {
            self.0.insert(name, value);
        }
    }
}

/// The caller's trace, as found in headers; kept in a request's extensions.
#[derive(Clone, Debug, Default)]
pub struct Parent(Context);

impl Parent {
    /// Makes `span` a child of the caller's span, when there is one.
    pub fn adopt(&self, span: &Span) {
        if self.0.span().span_context().is_valid() {
            let _no_exporter_is_fine = span.set_parent(self.0.clone());
        }
    }
}

/// Reads the caller's trace.
pub fn extract(headers: &HeaderMap) -> Parent {
    Parent(TraceContextPropagator::new().extract(&Headers(headers)))
}

/// Writes the current span's trace.
pub fn inject(headers: &mut HeaderMap) {
    let context = Span::current().context();
    if context.span().span_context().is_valid() {
        TraceContextPropagator::new().inject_context(&context, &mut HeadersMut(headers));
    }
}
