// The same protection in a backend in another language, which calls the service over HTTP, and without a change to a backend, behind the
// proxy. A test runs each of these snippets.

/** The fields of a claim, under each policy. */
const PYTHON_CLAIMS_BY = { remembered: '"token": token', key: '"key": key', interval: '"interval": "5s"' };
const NODE_CLAIMS_BY = { remembered: "token", key: "key", interval: 'interval: "5s"' };

const PYTHON_HEAD = (origin, modules) => `# Standard library only. /demo/payments.py is a complete server on the package onceward, which also retries lost calls and renews its claim.
import ${modules}

def ask(path, body):
    headers = {"content-type": "application/json"}  # with an API key: "authorization": "Bearer …"
    request = urllib.request.Request("${origin}" + path, json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status, json.loads(answer.read() or "{}")
    except urllib.error.HTTPError as error:
        if error.code != 401:
            return error.code, json.load(error)
        logging.error("the API key is missing or wrong")  # for the operator, not for the customer
    except OSError as error:
        logging.error("Onceward does not respond: %s", error)
    return 503, {"code": "store_unavailable"}  # nothing runs
`;

/** Python, for a Flask or Django view. */
export function python({ policy, origin }) {
  if (policy === "token") {
    return `${PYTHON_HEAD(origin, "json, logging, urllib.error, urllib.request, uuid")}
def place_order(token, order):
    attempt = uuid.uuid4().hex
    status, told = ask("/token/redeem", {"token": token, "attempt": attempt})
    if status != 200:
        return status, told  # 409 token_used: this was already sent
    try:
        return 201, save(order)
    except Exception:  # nothing was saved: the token is valid again
        ask("/token/release", {"token": token, "attempt": attempt, "run_id": told["run_id"]})
        raise`;
  }
  const { parameters, rejected, replay, reply } = claimParts(policy);
  const replayed = `    if told["outcome"] == "replay":
        return told["reply"]["status"], json.loads(base64.b64decode(told["reply"]["body"]))
`;
  const kept = `    body = base64.b64encode(json.dumps(placed).encode()).decode()
    ask("/claim/complete", {"pass": told["pass"], "reply": {"status": 201, "body": body}})`;
  return `${PYTHON_HEAD(origin, `${replay ? "base64, " : ""}json, logging, urllib.error, urllib.request`)}
def place_order(${parameters}):
    content = json.dumps(order, sort_keys=True)
    status, told = ask("/claim", {${PYTHON_CLAIMS_BY[policy]}, "action": "POST /orders", "subject": user, "fingerprint": content})
    if status != 200:
        return status, told  # ${rejected}
${replay ? replayed : ""}    try:
        placed = save(order)  # longer than told["lease"]? POST /claim/renew every told["renew_every"]
    except Exception:  # nothing was saved: it may be sent again
        ask("/claim/release", {"pass": told["pass"]})
        raise
${reply ? kept : '    ask("/claim/complete", {"pass": told["pass"]})'}
    return 201, placed`;
}

const NODE_HEAD = (origin) => `// No packages. /demo/payments.mjs is a complete server, which also retries lost calls and renews its claim.
async function ask(path, body) {
  const headers = { "content-type": "application/json" }; // with an API key: authorization: "Bearer …"
  try {
    const answer = await fetch("${origin}" + path, { method: "POST", headers, body: JSON.stringify(body) });
    if (answer.status !== 401) return [answer.status, JSON.parse((await answer.text()) || "{}")];
    console.error("the API key is missing or wrong"); // for the operator, not for the customer
  } catch (error) {
    console.error("Onceward does not respond", error);
  }
  return [503, { code: "store_unavailable" }]; // nothing runs
}
`;

/** Node, for an Express handler. */
export function node({ policy, origin }) {
  if (policy === "token") {
    return `${NODE_HEAD(origin)}
async function placeOrder(token, order) {
  const attempt = crypto.randomUUID();
  const [status, told] = await ask("/token/redeem", { token, attempt });
  if (status !== 200) return [status, told]; // 409 token_used: this was already sent
  try {
    return [201, await save(order)];
  } catch (error) { // nothing was saved: the token is valid again
    await ask("/token/release", { token, attempt, run_id: told.run_id });
    throw error;
  }
}`;
  }
  const { parameters, rejected, replay, reply } = claimParts(policy);
  const replayed = `  if (told.outcome === "replay") {
    return [told.reply.status, JSON.parse(Buffer.from(told.reply.body, "base64"))];
  }
`;
  const kept = `  const body = Buffer.from(JSON.stringify(placed)).toString("base64");
  await ask("/claim/complete", { pass: told.pass, reply: { status: 201, body } });`;
  return `${NODE_HEAD(origin)}
async function placeOrder(${parameters}) {
  const fingerprint = JSON.stringify(order);
  const [status, told] = await ask("/claim", { ${NODE_CLAIMS_BY[policy]}, action: "POST /orders", subject: user, fingerprint });
  if (status !== 200) return [status, told]; // ${rejected}
${replay ? replayed : ""}  let placed;
  try {
    placed = await save(order); // longer than told.lease? POST /claim/renew every told.renew_every
  } catch (error) { // nothing was saved: it may be sent again
    await ask("/claim/release", { pass: told.pass });
    throw error;
  }
${reply ? kept : '  await ask("/claim/complete", { pass: told.pass });'}
  return [201, placed];
}`;
}

/** The fields of the route, under each policy. */
const PROXY_ROUTES = {
  remembered: 'policy = "token"\nremember = "10m"  # a duplicate receives the stored response',
  token: 'policy = "token"  # a duplicate receives 409 token_used',
  key: 'policy = "key"  # the header Idempotency-Key; a duplicate receives the stored response\nat_most_once = false  # a 500 frees the key',
  interval: 'policy = "interval"  # a duplicate receives 409 too_soon\nevery = "5s"\nsubject = "client_address"',
};

/** The settings of the proxy, for a backend that stays as it is. */
export function proxy({ policy }) {
  const inject = ["remembered", "token"].includes(policy) ? "inject = true  # adds the script to the HTML pages of the backend\n" : "";
  return `# Any backend, without a change. Start it with: onceward proxy --config onceward.toml
upstream = "http://127.0.0.1:3000"
${inject}
[[proxy.route]]
path = "/orders"
${PROXY_ROUTES[policy]}`;
}

/** The parts that differ between the policies with a claim. */
function claimParts(policy) {
  if (policy === "interval") return { parameters: "user, order", rejected: "409 too_soon: the same order was sent a moment ago", replay: false, reply: false };
  const parameters = policy === "key" ? "key, user, order" : "token, user, order";
  return { parameters, rejected: "409 in_progress: the first request is in flight", replay: true, reply: true };
}
