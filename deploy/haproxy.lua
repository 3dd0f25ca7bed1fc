-- Checks a submission with Onceward: `http-request lua.onceward KEY` in haproxy.cfg. Sets the variable txn.onceward to `redeemed` if the
-- token was accepted. Sends the response of a rejection. If neither happens, haproxy.cfg forwards nothing.

local ASKED = { "accept", "onceward-token", "onceward-attempt" }
local FORWARDED = { "content-type", "content-security-policy", "cache-control", "retry-after", "onceward-outcome" }
local RUN = { "onceward-run-id" }
-- Onceward sends these codes with a 4xx, because some gateways treat a 5xx as "allow".
local AWAY = { store_unavailable = true, redeem_unknown = true, overloaded = true, internal = true, unauthorized = true }

-- Returns the named headers with all their values. HAProxy's tables start at 0.
local function only(names, headers)
    local kept = {}
    for _, name in ipairs(names) do
        local values, index = headers[name] or {}, 0
        while values[index] do
            kept[name] = kept[name] or {}
            table.insert(kept[name], values[index])
            index = index + 1
        end
    end
    return kept
end

core.register_action("onceward", { "http-req" }, function(txn, key)
    local headers = only(ASKED, txn.http:req_get_headers())
    headers["authorization"] = { "Bearer " .. key }
    headers["x-original-method"] = { txn.sf:method() }
    headers["x-original-uri"] = { txn.sf:pathq() }
    local answer = core.httpclient():get({
        url = "http://onceward/forward-auth",
        dst = "abns@onceward",
        headers = headers,
        timeout = 3000,
    })
    local forwarded = only(FORWARDED, answer.headers or {})
    local outcome = (forwarded["onceward-outcome"] or {})[1]
    if answer.status == 200 and outcome == "redeemed" then
        txn:set_var("txn.onceward", "redeemed")
        local run = only(RUN, answer.headers)["onceward-run-id"]
        if run then txn:set_var("txn.run", run[1]) end
    elseif outcome and answer.status >= 400 then
        local status = AWAY[outcome] and 503 or answer.status
        txn:done(txn:reply({ status = status, headers = forwarded, body = answer.body }))
    end
end, 1)
