//! The body of an answer.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::visit::Visit;

pin_project! {
    /// The body of an answer, passed on as it comes. Its session is in use until it has ended.
    #[derive(Debug)]
    pub struct Answer<R> {
        #[pin]
        kind: Source<R>,
        visit: Option<Arc<Visit>>,
    }
}

pin_project! {
    #[project = SourceProj]
    #[derive(Debug)]
    enum Source<R> {
        Inner { #[pin] body: R },
        Ours { text: Option<Bytes> },
    }
}

impl<R: Body> Source<R> {
    fn is_end_stream(&self) -> bool {
        match self {
            Self::Inner { body } => body.is_end_stream(),
            Self::Ours { text } => text.is_none(),
        }
    }
}

impl<R> Answer<R> {
    pub(crate) fn of(body: R, visit: Option<Arc<Visit>>) -> Self {
        Self { kind: Source::Inner { body }, visit }
    }

    pub(crate) fn ours(text: Bytes) -> Self {
        Self { kind: Source::Ours { text: Some(text) }, visit: None }
    }
}

impl<R: Body<Data = Bytes>> Body for Answer<R> {
    type Data = Bytes;
    type Error = R::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, R::Error>>> {
        let mut this = self.project();
        let frame = match this.kind.as_mut().project() {
            SourceProj::Inner { body } => body.poll_frame(cx),
            SourceProj::Ours { text } => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
        };
        // Whoever knows that this was all may not ask again.
        if let Poll::Ready(said) = &frame
            && let Some(visit) = this.visit
            && visit.has_to_tell()
            && (said.is_none() || this.kind.is_end_stream())
        {
            visit.answered();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.kind.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Source::Inner { body } => body.size_hint(),
            Source::Ours { text } => {
                SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64))
            }
        }
    }
}
