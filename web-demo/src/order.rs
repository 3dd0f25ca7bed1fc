//! An order: the content of the form, and the response. Only its number is stored.

use actix_web::http::StatusCode;
use actix_web::http::header::{ACCEPT, CONTENT_LANGUAGE};
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;
use serde_json::json;

use crate::language::DemoLanguage;

/// The goods: the value in the form, and the labels in English and Chinese.
const GOODS: [(&str, &str, &str); 3] = [
    ("tea", "Tea, 100 g", "茶叶，100 克"),
    ("coffee", "Coffee, 250 g", "咖啡，250 克"),
    ("cocoa", "Cocoa, 200 g", "可可，200 克"),
];
/// Maximum quantity.
const MAX_QUANTITY: u8 = 9;
/// Maximum length of a name, in characters.
const MAX_NAME: usize = 40;

/// The fields of the form.
#[derive(Debug, Deserialize)]
pub(crate) struct Order {
    item: String,
    quantity: String,
    name: String,
}

impl Order {
    /// Checks the order, and returns its description.
    ///
    /// # Errors
    /// A sentence that says how to correct the order.
    pub(crate) fn check(&self, language: DemoLanguage) -> Result<String, String> {
        let Some((_, item, chinese)) = GOODS.iter().find(|(name, ..)| *name == self.item) else {
            return Err(language.pick("We sell tea, coffee and cocoa.", "我们出售茶叶、咖啡和可可。").to_owned());
        };
        let quantity = self.quantity.parse().ok().filter(|quantity| (1..=MAX_QUANTITY).contains(quantity));
        let quantity = quantity.ok_or_else(|| {
            language.pick(
                format!("Enter a quantity from 1 to {MAX_QUANTITY}."),
                format!("请输入 1 到 {MAX_QUANTITY} 之间的数量。"),
            )
        })?;
        let name = self.name.trim();
        if name.is_empty() || name.chars().count() > MAX_NAME || name.chars().any(char::is_control) {
            return Err(language.pick(
                format!("Enter a name of up to {MAX_NAME} characters."),
                format!("请输入不超过 {MAX_NAME} 个字符的姓名。"),
            ));
        }
        Ok(language.pick(format!("{quantity} × {item} for {name}"), format!("{quantity} × {chinese}（{name}）")))
    }
}

/// Builds the response: JSON for a script, a page for a browser without JavaScript.
pub(crate) fn respond(
    request: &HttpRequest,
    language: DemoLanguage,
    status: StatusCode,
    order: Option<u64>,
    text: &str,
) -> HttpResponse {
    let mut answer = HttpResponse::build(status);
    answer.insert_header((CONTENT_LANGUAGE, language.tag()));
    let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    if accept.starts_with("text/html") {
        return answer.content_type("text/html; charset=utf-8").body(page(language, order, text));
    }
    answer.json(json!({ "order": order, "text": text }))
}

fn page(language: DemoLanguage, order: Option<u64>, text: &str) -> String {
    let (none, back) = language.pick(("Not ordered", "Back to the shop"), ("没有下单", "返回商店"));
    let placed = |number| language.pick(format!("Order {number} is placed"), format!("订单 {number} 已下单"));
    let title = order.map_or_else(|| none.to_owned(), placed);
    format!(
        "<!doctype html>\n<html lang=\"{lang}\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>{title}</title>\
         <link rel=\"stylesheet\" href=\"/demo/demo.css\"></head>\
         <body><main class=\"receipt\"><h1>{title}</h1><p>{}</p><p><a href=\"/\">{back}</a></p></main></body></html>\n",
        escape(text),
        lang = language.tag(),
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(item: &str, quantity: &str, name: &str) -> Result<String, String> {
        Order { item: item.to_owned(), quantity: quantity.to_owned(), name: name.to_owned() }
            .check(DemoLanguage::English)
    }

    #[test]
    fn valid_order_round_trips_and_others_name_the_mistake() {
        assert_eq!(check("tea", "2", " Ada ").unwrap(), "2 × Tea, 100 g for Ada");
        assert_eq!(check("tea", "1", &"ä".repeat(40)).map(|_| ()), Ok(()));
        for (item, quantity, name, said) in [
            ("gold", "1", "Ada", "tea"),
            ("tea", "0", "Ada", "1 to 9"),
            ("tea", "10", "Ada", "1 to 9"),
            ("tea", "one", "Ada", "1 to 9"),
            ("tea", "1", " ", "name"),
            ("tea", "1", "a\u{7}b", "name"),
            ("tea", "1", &"a".repeat(41), "name"),
        ] {
            assert!(check(item, quantity, name).unwrap_err().contains(said), "{item} {quantity} {name}");
        }
    }

    #[test]
    fn user_input_is_escaped() {
        let page = page(DemoLanguage::English, Some(1), "1 × Tea for <script>alert('&\"')</script>");
        assert!(
            page.contains("&lt;script&gt;alert(&#39;&amp;&quot;&#39;)&lt;/script&gt;") && !page.contains("<script")
        );
    }
}
