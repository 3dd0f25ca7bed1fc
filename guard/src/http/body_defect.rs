//! The reasons why a body cannot be read.

use onceward_api::Code;

use crate::language::Language;
use crate::rejection::Rejection;

/// Why a body cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyDefect {
    EndedEarly,
    NamesNoBoundary,
    LacksBoundary,
    EndsInBoundary,
    BoundaryNotAlone,
    EndsInHead,
    EndsInPart,
    NotText,
}

impl BodyDefect {
    /// Creates the rejection of the body.
    pub(super) fn rejection(self) -> Rejection {
        let (english, chinese) = self.reason();
        Rejection::new(Code::BadRequest)
            .detail(format!("The body cannot be read: {english}."))
            .detail_in(Language::SIMPLIFIED_CHINESE, format!("无法读取请求体：{chinese}。"))
    }

    fn reason(self) -> (&'static str, &'static str) {
        match self {
            Self::EndedEarly => ("it ended early", "请求体提前结束"),
            Self::NamesNoBoundary => ("its content type names no boundary", "Content-Type 中没有 boundary"),
            Self::LacksBoundary => ("it does not contain its boundary", "其中没有 boundary 分隔行"),
            Self::EndsInBoundary => ("it ends within a boundary", "在 boundary 分隔行处中断"),
            Self::BoundaryNotAlone => ("its boundary is not on a line of its own", "boundary 没有独占一行"),
            Self::EndsInHead => ("it ends within the headers of its first part", "在第一部分的头部中断"),
            Self::EndsInPart => ("it ends within its first part", "在第一部分中断"),
            Self::NotText => ("its first part is not text", "第一部分不是文本"),
        }
    }
}
