// Code to copy, in nine tabs. Each snippet follows the settings.

import { node, proxy, python } from "./backend_snippets.js";
import recipe from "./recipe.js";

const TAKES_TOKEN = ["remembered", "token"];
/** The policies that store the response, and hold a claim while the handler runs. */
const KEEPS = ["remembered", "key"];

/** Returns the text of a tab. */
export function snippet(tab, switches) {
  const write = { "tab-html": html, "tab-fetch": fetching, "tab-python": python, "tab-node": node, "tab-actix": actix, "tab-axum": axum, "tab-proxy": proxy, "tab-nginx": nginx, "tab-curl": curl }[tab];
  return write({ ...switches, takesToken: TAKES_TOKEN.includes(switches.policy) });
}

/** Splits the text into pieces, with its comments marked up. */
export function withComments(text) {
  return text.split(/(<!--[^]*?-->|(?:^|  )# .*$|\/\/ .*$)/m).map((piece, at) => {
    if (at % 2 === 0) return piece;
    const comment = document.createElement("span");
    comment.className = "comment";
    comment.textContent = piece;
    return comment;
  });
}

function html({ policy, takesToken }) {
  const form = (attribute, field) => `<form method="post" action="/orders"${attribute}>
${field}  <input name="name" required>
  <button>Place order</button>
</form>`;
  if (takesToken) return `<script src="/sdk/onceward.js" defer></script>\n\n${form(" data-onceward", "")}`;
  if (policy === "key") {
    return `<!-- A form cannot send a header: the key is a field, with a new value
     in each form that is shown. KeyFrom::body("/order_id") reads it. -->
${form("", '  <input type="hidden" name="order_id" value="7c1f0e9a…">\n')}`;
  }
  return `<!-- The form needs no change: the server compares the content. -->\n${form("", "")}`;
}

function fetching({ policy, handlerMode, takesToken }) {
  const headers = handlerMode ? `\n  headers: { "Demo-Handler": "${handlerMode}" },` : "";
  const call = (url, key) => `const { outcome, response } = await onceward.fetch("${url}", {
  method: "POST",${key}${headers}
  body: new URLSearchParams({ item: "tea", quantity: "1", name: "Ada" }),
});`;
  const after = handlerMode.includes("loses") ? '\nif (outcome === "unknown") alert("Your order may have been placed.");' : "";
  if (takesToken) return `// The script of the page: /sdk/onceward.js\n${call(`/demo/orders/${policy}`, "")}${after}`;
  if (policy === "key") {
    const key = "const key = `order-${Date.now()}`; // yours, the same for every attempt of this order";
    return `// The script of the page: /sdk/onceward.js\n${key}\n${call("/demo/orders/key", "\n  key,")}${after}`;
  }
  return `const response = await fetch("/demo/orders/interval", {
  method: "POST",${headers}
  body: new URLSearchParams({ item: "tea", quantity: "1", name: "Ada" }),
});
const isDuplicate = response.status === 409; // the first one was accepted: do not send it again`;
}

function curl({ policy, handlerMode, origin, visitor, takesToken }) {
  const lines = [`curl -i ${origin}/demo/orders/${policy}`, `-b onceward-demo=${visitor}`];
  if (takesToken) lines.push('-H "Onceward-Token: $TOKEN"');
  if (policy === "key") lines.push('-H "Idempotency-Key: $KEY"');
  if (handlerMode) lines.push(`-H "Demo-Handler: ${handlerMode}"`);
  lines.push("-d 'item=tea&quantity=1&name=Ada'");
  const order = lines.join(" \\\n  ");
  const token = `TOKEN=$(curl -s -X POST ${origin}/token |\n  sed 's/.*"token":"\\([^"]*\\)".*/\\1/')\n\n`;
  const first = takesToken ? token : policy === "key" ? "KEY=order-$$\n\n" : "";
  return `${first}# Run this as often as you like; the counts above are yours.\n${order}`;
}

function nginx({ policy, origin, takesToken }) {
  if (takesToken) return recipe.replace("127.0.0.1:8080", new URL(origin).host).trimEnd();
  return `# A gateway can check tokens, but not ${policy === "key" ? "keys" : "intervals"}. The backend does that instead:
# POST /claim returns "run", or ${policy === "key" ? "the stored response" : "409 too_soon for a duplicate"}.
# See the Python and Node tabs.`;
}

const WRAPS = {
  remembered: "Protect::token(&guard, SubjectFrom::anonymous()).remember(Duration::from_secs(600))",
  token: "Protect::token(&guard, SubjectFrom::anonymous())",
  key: "Protect::key(&guard, SubjectFrom::anonymous(), KeyRules::retryable())",
  interval: "Protect::interval(&guard, SubjectFrom::client_address(), IntervalRules::new())",
};

/** The module of each name, with actix-web. */
const ACTIX_NAMES = {
  "std::time": ["Duration"],
  "actix_web": ["App", "HttpResponse", "web"],
  "actix_web::rt::time": ["sleep"],
  "onceward": ["Guard", "IntervalRules", "KeyRules"],
  "onceward::actix": ["Protect", "SubjectFrom", "token_route"],
  "onceward::store": ["Memory"],
};

/** The module of each name, with axum. */
const AXUM_NAMES = {
  "std::net": ["SocketAddr"],
  "std::time": ["Duration"],
  "axum": ["Router"],
  "axum::http": ["StatusCode"],
  "axum::routing": ["post"],
  "onceward": ["Guard", "IntervalRules", "KeyRules"],
  "onceward::axum": ["Protect", "SubjectFrom", "entered", "token_route"],
  "onceward::store": ["Memory"],
  "tokio::time": ["sleep"],
};

/** Returns the imports of the names in the code, and the code. */
function withUses(modules, code) {
  const uses = Object.entries(modules).flatMap(([path, names]) => {
    const used = names.filter((name) => new RegExp(`\\b${name}\\b`).test(code));
    if (used.length === 0) return [];
    return `use ${path}::${used.length === 1 ? used[0] : `{${used.join(", ")}}`};\n`;
  });
  return `${uses.join("")}\n${code}`;
}

/** Returns the body of the handler, in Rust: how it responds after an order, and how it fails. */
function rustBody({ policy, handlerMode }, ordered, failed) {
  const lost = KEEPS.includes(policy) ? "stored before it is sent: a lost response is replayed" : "a lost response is gone: a duplicate is rejected";
  const renewed = KEEPS.includes(policy) ? " // its claim is renewed meanwhile" : "";
  const body = handlerMode.includes("slow") ? [`    sleep(Duration::from_millis(1200)).await;${renewed}`] : [];
  if (handlerMode.includes("fails")) body.push(`    ${failed} // nothing happened: it may be sent again`);
  else if (handlerMode.includes("loses")) body.push(`    ${ordered} // ${lost}`);
  else body.push(`    ${ordered}`);
  return body.join("\n");
}

function actix(switches) {
  const { policy, takesToken } = switches;
  const token = takesToken ? "\n    .service(token_route(&guard, SubjectFrom::anonymous()))" : "";
  return withUses(
    ACTIX_NAMES,
    `async fn place_order() -> HttpResponse {
${rustBody(switches, 'HttpResponse::Created().body("ordered")', "HttpResponse::ServiceUnavailable().finish()")}
}

let guard = Guard::new(Memory::new());
let app = App::new()${token}
    .service(
        web::resource("/orders")
            .wrap(${WRAPS[policy]})
            .route(web::post().to(place_order)),
    );`,
  );
}

function axum(switches) {
  const { policy, takesToken } = switches;
  const token = takesToken ? "\n    .merge(token_route(&guard, SubjectFrom::anonymous()))" : "";
  const address = policy === "interval" ? "\nlet app = app.into_make_service_with_connect_info::<SocketAddr>(); // for client_address()" : "";
  return withUses(
    AXUM_NAMES,
    `async fn place_order() -> (StatusCode, &'static str) {
${rustBody(switches, '(StatusCode::CREATED, "ordered")', '(StatusCode::SERVICE_UNAVAILABLE, "")')}
}

let guard = Guard::new(Memory::new());
let protect = ${WRAPS[policy]};
let app = Router::new()${token}
    .route("/orders", post(entered(place_order)).layer(protect));${address}`,
  );
}
