//! The texts in Simplified Chinese.

use std::borrow::Cow;

use onceward_api::Code;

use super::wording::{PageLabels, PageText, Wording};

const REOPEN: &str = "请返回并刷新表单，然后重新提交。";
const WAIT: &str = "请稍等片刻，然后刷新本页重新提交。";
const CORRECT: &str = "请返回，检查填写的内容，然后重新提交。如果仍有问题，请联系客服。";
const ASK: &str = "请不要重新提交。请联系客服，并提供下方的详细信息。";
const LOOK_OR_ASK: &str =
    "如果您只是打开页面，请刷新本页。如果您提交了表单，请不要重新提交：请联系客服，并提供下方的详细信息。";
const NOTHING: &str = "您提交的内容没有被处理。";

pub(super) const LABELS: PageLabels = PageLabels {
    back_to_form: Cow::Borrowed("点击浏览器的“后退”按钮可以返回表单，您填写的内容通常仍会保留。"),
    back_to_last_page: Cow::Borrowed("点击浏览器的“后退”按钮可以返回上一页。"),
    start_page: Cow::Borrowed("返回首页"),
    details: Cow::Borrowed("详细信息（供客服使用）"),
    code: Cow::Borrowed("错误码"),
    address: Cow::Borrowed("地址"),
    explanation: Cow::Borrowed("说明"),
    request: Cow::Borrowed("请求编号"),
};

/// Returns the texts of a code; `None` for a code that has none yet.
pub(super) fn wording(code: Code) -> Option<Wording> {
    let (title, detail) = problem(code)?;
    let (heading, happened, next) = page(code)?;
    Some(Wording::new(title, detail).page(PageText::new(heading, happened, next)))
}

fn problem(code: Code) -> Option<(&'static str, &'static str)> {
    Some(match code {
        Code::TokenMissing => (
            "缺少令牌",
            "此次提交需要一次性令牌，请放在 Onceward-Token 请求头或 _onceward 字段中。请获取令牌后重新提交。",
        ),
        Code::TokenMalformed => ("令牌格式错误", "提交的令牌格式不正确。请获取令牌后重新提交。"),
        Code::TokenInvalid => (
            "令牌在此处无效",
            "该令牌不是由本服务签发的，或者是为其他操作或其他用户（subject）签发的。令牌未被使用。请为本次提交获取令牌。",
        ),
        Code::TokenExpired => ("令牌已过期", "令牌在使用前已过期。请获取新的令牌后重新提交。"),
        Code::TokenUsed => ("请勿重复提交", "该令牌已被使用，说明此次提交已经收到过。本次请求没有再次执行。"),
        Code::TokenRevoked => ("令牌已被撤销", "运维人员在令牌使用前撤销了该令牌。请求没有执行。"),
        Code::TokenStale => {
            ("令牌签发于重启之前", "令牌签发之后存储发生过重启，无法确定该令牌是否已被使用。请获取新的令牌后重新提交。")
        }
        Code::RedeemUnknown => (
            "校验未能完成",
            "核销令牌时没有收到存储服务的回复。本次请求没有执行，但令牌可能已被使用。请获取新的令牌后重新提交。",
        ),
        Code::KeyMissing => ("缺少幂等键", "此次提交需要幂等键。幂等键由客户端生成，每次重试都必须相同。"),
        Code::KeyMalformed => ("幂等键格式错误", "幂等键必须是 1 到 255 个可见的 ASCII 字符，且一个请求中只能有一个。"),
        Code::KeyReused => {
            ("幂等键已用于其他请求", "同一个幂等键此前已随不同的内容发送过。新的提交需要使用新的幂等键。")
        }
        Code::InProgress => ("请求正在处理中", "相同的提交正在处理中。请稍后重新发送同一请求。"),
        Code::OutcomeUnknown => (
            "执行结果未知",
            "首次请求已开始执行，但结果没有记录下来。在应用或运维人员确认结果之前，该请求不会再次执行。",
        ),
        Code::NotFound => ("未找到", "没有此次提交的记录。"),
        Code::ReplyNotKept => ("首次响应未保存", "请求已经执行，但响应没有保存，因此无法再次返回。"),
        Code::ClaimLost => ("执行权已失效", "执行权已过期或已结束，可能已属于另一次执行。没有做任何更改。"),
        Code::StoreUnavailable => {
            ("存储暂不可用", "存储暂不可用，无法判断是否为重复提交。请求没有执行。请稍后重新发送同一请求。")
        }
        Code::TooSoon => ("提交过于频繁", "相同的请求刚刚发送过，请勿重复提交。本次请求没有再次执行。"),
        Code::Locked => {
            ("锁被其他请求占用", "本次请求所需的锁正被其他请求占用。请求没有执行。请稍后重新发送同一请求。")
        }
        Code::RateLimited => (
            "请求过于频繁",
            "获取令牌的请求超出了速率限制。请按 Retry-After 响应头给出的时间等待，然后重新发送同一请求。",
        ),
        Code::Overloaded => ("服务器繁忙", "服务器暂时无法接受更多请求。请求没有执行。请稍后重新发送同一请求。"),
        Code::Unauthorized => ("需要身份验证", "无法识别请求方的身份。请登录或提供凭证。"),
        Code::BadRequest => ("请求无效", "请求的部分内容缺失或格式错误。请求没有执行。"),
        Code::BodyTooLarge => ("请求体过大", "请求体超出大小限制。请求没有执行。"),
        Code::MethodNotAllowed => ("不支持该请求方法", "此 URL 不支持该请求方法。请使用 Allow 响应头列出的方法。"),
        Code::UnsupportedMediaType => ("不支持的媒体类型", "请以 application/json 格式发送请求体。"),
        Code::UpstreamUnavailable => ("无法连接到应用", "代理无法连接到应用。请求没有执行。请稍后重新发送同一请求。"),
        Code::UpstreamTimeout => {
            ("应用响应超时", "代理已将请求发送给应用，但没有在规定时间内收到响应。无法确定请求是否已生效。")
        }
        Code::UpstreamFailed => ("应用的响应不完整", "请求发送之后，与应用的连接中断。无法确定请求是否已生效。"),
        Code::Internal => ("内部错误", "请求处理失败，无法确定是否已生效。该请求不会自动再次执行。"),
        _ => return None,
    })
}

/// Returns the heading, what happened and the next step, in words that customers know.
fn page(code: Code) -> Option<(&'static str, &'static str, &'static str)> {
    Some(match code {
        Code::TokenUsed => (
            "请勿重复提交",
            "我们已经收到过这份表单，没有再次处理。",
            "请查看首次提交的确认信息。如果要提交新的内容，请重新打开表单。",
        ),
        Code::KeyReused => (
            "请勿重复提交",
            "我们已经收到过这份表单，但当时的内容不同。修改后的内容没有被处理。",
            "请查看首次提交的确认信息。如果还要提交修改后的内容，请重新打开表单。",
        ),
        Code::TooSoon => ("您刚刚提交过", "我们刚刚收到过相同的表单，没有再次处理。", "您无需再做其他操作。"),
        Code::ReplyNotKept => {
            ("已经处理完成", "您首次提交时已处理完成，没有再次处理。确认信息无法再次显示。", "您无需重新提交。")
        }
        Code::InProgress => {
            ("正在处理中", "您提交的内容正在处理中，不会重复处理。", "请稍等片刻，然后刷新本页查看结果。")
        }
        Code::OutcomeUnknown => {
            ("处理结果未知", "我们已经开始处理您提交的内容，但无法确定是否已经完成。我们没有重新开始处理。", ASK)
        }
        Code::Internal => ("出错了", "我们的系统出现错误，无法确定您提交的内容是否已被处理。", ASK),
        Code::UpstreamUnavailable => ("暂时无法使用", NOTHING, WAIT),
        Code::UpstreamTimeout | Code::UpstreamFailed => {
            ("处理结果未知", "系统没有返回完整的结果。如果您提交了表单，我们无法确定是否已被处理。", LOOK_OR_ASK)
        }
        Code::ClaimLost => ("未能处理完成", "您提交的内容已不在此处处理，可能已在别处被处理。", ASK),
        Code::TokenExpired => ("表单已过期", "表单打开的时间过长。您提交的内容没有被处理。", REOPEN),
        Code::TokenStale => (
            "表单已过期",
            "您打开表单之后，系统重启过，无法确定您之前是否提交过。您本次提交的内容没有被处理。",
            "如果您之前提交过，请先查看确认信息。如果没有，请返回并刷新表单，然后重新提交。",
        ),
        Code::TokenMissing | Code::TokenMalformed | Code::TokenInvalid => {
            ("请重新打开表单", "表单提交时不完整。您提交的内容没有被处理。", REOPEN)
        }
        Code::TokenRevoked => ("表单已被撤回", NOTHING, "如果您对此有疑问，请联系客服，并提供下方的详细信息。"),
        Code::RedeemUnknown => ("未能核对", "我们无法确定您之前是否提交过，因此您本次提交的内容没有被处理。", REOPEN),
        Code::StoreUnavailable => {
            ("暂时无法核对", "我们暂时无法确定您之前是否提交过，因此您本次提交的内容没有被处理。", WAIT)
        }
        Code::Locked => ("请稍候", "我们正在处理其他内容，您提交的内容尚未被处理。", WAIT),
        Code::RateLimited => ("操作过于频繁", "短时间内提交的表单过多。您提交的内容没有被处理。", WAIT),
        Code::Overloaded => ("系统繁忙", NOTHING, WAIT),
        Code::Unauthorized => ("请先登录", "您尚未登录。您提交的内容没有被处理。", "请登录，然后重新提交表单。"),
        Code::BodyTooLarge => {
            ("内容过大", "您提交的内容超出大小限制，没有被处理。", "请返回，缩短文字或选择较小的文件，然后重新提交。")
        }
        Code::NotFound => ("页面不存在", "此地址没有任何内容。", "请检查地址，或返回首页。"),
        Code::MethodNotAllowed => ("无法直接打开此页面", NOTHING, "请返回首页，从首页打开表单。"),
        Code::KeyMissing | Code::KeyMalformed | Code::BadRequest | Code::UnsupportedMediaType => {
            ("无法读取表单", "我们无法读取您提交的内容，因此没有处理。", CORRECT)
        }
        _ => return None,
    })
}
