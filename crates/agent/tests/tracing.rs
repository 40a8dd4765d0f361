//! Spans and events of a hub, as the subscriber of a user sees them. A program has one subscriber, so this is a program
//! of its own.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::{
    fmt::{self, Write as _},
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::json;
use stayput::{Hub, Stdio};
use stayput_testkit::program;
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id},
};
use tracing_subscriber::{Layer, layer::Context, prelude::*, registry::LookupSpan};

/// Layer that writes each event as `session{id=…}:link{…}:call{…}: LEVEL fields`.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<String>>>);

/// Fields of a span, as text.
struct SpanFields(String);

/// Text of fields.
#[derive(Default)]
struct FieldText(String);

impl Visit for FieldText {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Recorder {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = FieldText::default();
        attributes.record(&mut fields);
        let text = format!("{}{{{}}}", attributes.metadata().name(), fields.0.trim());
        context.span(id).unwrap().extensions_mut().insert(SpanFields(text));
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut line = String::new();
        for span in context.event_scope(event).into_iter().flat_map(|it| it.from_root()) {
            line.push_str(&span.extensions().get::<SpanFields>().unwrap().0);
            line.push(':');
        }
        let mut fields = FieldText::default();
        event.record(&mut fields);
        self.0.lock().unwrap().push(format!("{line} {}{}", event.metadata().level(), fields.0));
    }
}

impl Recorder {
    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// R028: the spans `session`, `link` and `call` name session, server, generation, era, method and tool; neither
/// environment values nor arguments, results or session keys are among them.
#[tokio::test]
async fn call_emits_its_spans_without_secrets() {
    let recorder = Recorder::default();
    tracing_subscriber::registry().with(recorder.clone()).init();
    let server = Stdio::new(program("stayput-testserver").to_str().unwrap())
        .args(["stdio", "--era", "legacy"])
        .env("TOKEN", "s3cr3t-of-env");
    let hub = Hub::builder().server("test", server).build().unwrap();
    let session = hub.session("s3cr3t-of-key").await.unwrap();
    let arguments = json!({ "fill": "s3cr3t-of-argument" });
    session.call("test", "echo", arguments).await.unwrap();
    let id = session.id();
    session.end().await.unwrap();
    hub.close(Duration::from_secs(10)).await;

    let lines = recorder.lines();
    let all = lines.join("\n");
    let spans = format!(
        "session{{id={id}}}:link{{server=\"test\" generation=0 era=\"legacy\"}}:\
         call{{method=\"tools/call\" tool=\"echo\"}}: DEBUG message=answered"
    );
    assert!(lines.contains(&spans), "{spans}\n{all}");
    for event in [
        format!("INFO message=session linked session={id} server=\"test\" generation=0"),
        format!("INFO message=session ended session={id}"),
        "DEBUG message=link opened server=\"test\"".to_owned(),
        "DEBUG message=child started pid=".to_owned(),
        "DEBUG message=child ended pid=".to_owned(),
    ] {
        assert!(lines.iter().any(|line| line.contains(&event)), "{event}\n{all}");
    }
    assert!(!all.contains("s3cr3t"), "{all}");
}
