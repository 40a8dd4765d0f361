//! Response body.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::request::RequestSession;

pin_project! {
    /// Response body, streamed frame by frame. The session counts as in use until the body is dropped.
    #[derive(Debug)]
    pub struct ResponseBody<R> {
        #[pin]
        source: Source<R>,
        request_session: Option<Arc<RequestSession>>,
    }
}

pin_project! {
    #[project = SourceProj]
    #[derive(Debug)]
    enum Source<R> {
        Inner { #[pin] body: R },
        Text { text: Option<Bytes> },
    }
}

impl<R: Body> Source<R> {
    fn is_end_stream(&self) -> bool {
        match self {
            Self::Inner { body } => body.is_end_stream(),
            Self::Text { text } => text.is_none(),
        }
    }
}

impl<R> ResponseBody<R> {
    pub(crate) fn new(body: R, request_session: Option<Arc<RequestSession>>) -> Self {
        Self { source: Source::Inner { body }, request_session }
    }

    pub(crate) fn text(text: Bytes) -> Self {
        Self { source: Source::Text { text: Some(text) }, request_session: None }
    }
}

impl<R: Body<Data = Bytes>> Body for ResponseBody<R> {
    type Data = Bytes;
    type Error = R::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, R::Error>>> {
        let mut this = self.project();
        let frame = match this.source.as_mut().project() {
            SourceProj::Inner { body } => body.poll_frame(cx),
            SourceProj::Text { text } => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
        };
        // After the last frame the server may not poll again.
        if let Poll::Ready(result) = &frame
            && let Some(request_session) = this.request_session
            && request_session.reports_loss()
            && (result.is_none() || this.source.is_end_stream())
        {
            request_session.on_response_sent();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.source.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Inner { body } => body.size_hint(),
            Source::Text { text } => {
                SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64))
            }
        }
    }
}
