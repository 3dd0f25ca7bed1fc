//! Wrong uses of `#[once]`, each followed by its compile error.

use onceward::actix::once;

#[once]
//~ `#[once]` starts with a policy: `token`, `key`, `key = "/order/id"` or `interval = "1500ms"`
async fn no_policy() {}

#[once(remember = "10m", token)]
//~ `#[once]` starts with a policy: `token`, `key`, `key = "/order/id"` or `interval = "1500ms"`
async fn policy_behind_an_option() {}

#[once(idempotent)]
//~ `#[once]` starts with a policy: `token`, `key`, `key = "/order/id"` or `interval = "1500ms"`
async fn unknown_policy() {}

#[once("token")]
//~ an option is a name, or a name and a value, as in `remember = "10m"`
async fn policy_in_quotes() {}

#[once(interval("1500ms"))]
//~ an option is a name, or a name and a value, as in `remember = "10m"`
async fn value_in_parentheses() {}

#[once(token, key)]
//~ `token` and `key` are two policies, and a handler has one: `token`, `key`, `key = "/order/id"` or `interval = "1500ms"`
async fn two_policies() {}

#[once(token, remeber = "10m")]
//~ there is no option `remeber`: the options of `token` are `remember = "10m"`, `wait = "10s"`, `bound`, `next_token`, `optional`, `subject = SubjectFrom::anonymous()`
async fn misspelt_option() {}

#[once(key, remember = "10m")]
//~ `remember` does not apply to `key`: the options of `key` are `retryable`, `retain = "24h"`, `wait = "10s"`, `optional`, `subject = SubjectFrom::anonymous()`
async fn option_of_a_token_with_a_key() {}

#[once(token, message = "Please wait.")]
//~ `message` does not apply to `token`: the options of `token` are `remember = "10m"`, `wait = "10s"`, `bound`, `next_token`, `optional`, `subject = SubjectFrom::anonymous()`
async fn option_of_an_interval_with_a_token() {}

#[once(interval = "1s", retryable)]
//~ `retryable` does not apply to `interval`: the options of `interval` are `message = "…"`, `remember`, `wait = "10s"`, `subject = SubjectFrom::anonymous()`
async fn option_of_a_key_with_an_interval() {}

#[once(key, retain = "24h", retain = "7d")]
//~ `retain` is given twice
async fn option_twice() {}

#[once(token, wait = "10s")]
//~ `wait` requires `remember = "10m"`: a token without it stores no response to wait for
async fn waiting_for_a_response_that_is_not_stored() {}

#[once(interval = "1s", wait = "10s")]
//~ `wait` requires `remember`: an interval without it stores no response to wait for
async fn waiting_in_an_interval_that_stores_nothing() {}

#[once(interval = "1s", remember, message = "Please wait.")]
//~ `message` does not apply with `remember`: a duplicate receives the stored response
async fn message_that_no_duplicate_receives() {}

#[once(interval = "1s", remember = "10m")]
//~ `remember` takes no value
async fn remembered_interval_with_a_time() {}

#[once(token = "x")]
//~ `token` takes no value
async fn value_of_a_flag() {}

#[once(token, remember)]
//~ `remember` requires a value, as in `remember = "10m"`
async fn missing_value() {}

#[once(interval)]
//~ `interval` requires a value, as in `interval = "1500ms"`
async fn missing_interval() {}

#[once(interval = 1500)]
//~ `interval` takes a text in quotes, as in `interval = "1500ms"`
async fn interval_without_quotes() {}

#[once(interval = "1.5s")]
//~ `1.5s` is not a duration: write a whole number and ms, s, m, h or d, as in `"90s"`
async fn broken_duration() {}

#[once(token, remember = "10 minutes")]
//~ `10 minutes` is not a duration: write a whole number and ms, s, m, h or d, as in `"90s"`
async fn duration_in_words() {}

#[once(interval = "0ms")]
//~ `interval` has to be longer than zero
async fn interval_of_zero() {}

#[once(token, remember = "0s")]
//~ `remember` has to be longer than zero
async fn retention_of_zero() {}

#[once(key = "order.id")]
//~ `order.id` is not a JSON pointer: name a field of the body, as in `key = "/order/id"`, with `~0` for `~` and `~1` for `/`; the header `Idempotency-Key` is `key` without a value
async fn path_with_a_dot() {}

#[once(key = "")]
//~ `` is not a JSON pointer: name a field of the body, as in `key = "/order/id"`, with `~0` for `~` and `~1` for `/`; the header `Idempotency-Key` is `key` without a value
async fn whole_body() {}

#[once(token)]
fn not_async() {}
//~ `#[once]` protects a handler: an `async fn`

#[once(token)]
async fn generic<T>(_: T) {}
//~ `#[once]` does not protect generic handlers: name the types, or wrap the route in `Protect`

#[once(token)]
struct Order;
//~ `#[once]` protects a handler: an `async fn`

impl Order {
    #[once(token)]
    async fn method(&self) {}
    //~ `#[once]` protects a function: a handler has no `self`
}

#[once(token)]
#[actix_web::post("/orders")]
//~ write `#[once]` below `#[actix_web::post]`: it protects the function, and `#[actix_web::post]` has to see it as you wrote it
async fn above_the_route_macro() -> String {
    String::new()
}

#[once(token)]
#[once(interval = "1s")]
//~ a handler has one `#[once]`: for a second policy, wrap the route in `Protect`
async fn attribute_twice() -> String {
    String::new()
}

fn main() {}
