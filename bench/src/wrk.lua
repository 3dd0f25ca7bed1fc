-- The load of one run, for wrk. The status of every response is checked. The key is the first part of the token, which contains its id, and is
-- as long as a UUID.
--
-- Arguments: the folder of the token files, one per thread and named by its number; the first token and the number of tokens; "once" or "again",
-- to stop or restart after the last token; the expected status of every response; the body; the method, where GET has no body; the ids in each
-- request: "both", "key", "token" or "none".

local threads = {}

function setup(thread)
  thread:set("number", #threads)
  table.insert(threads, thread)
end

local KEY = 36

local head, tail, tokens, width, count, again, expected, ids
local sent = 0

-- Global, since `done` reads them from another Lua state.
ran_out = 0
unexpected = 0
unexpected_status = 0

function init(args)
  again = args[4] == "again"
  expected = tonumber(args[5])
  ids = args[8]
  head = args[7] .. " " .. wrk.path .. " HTTP/1.1\r\nHost: " .. wrk.host .. ":" .. wrk.port
    .. "\r\nAccept: application/json"
  tail = "\r\nContent-Type: application/json\r\nContent-Length: " .. #args[6] .. "\r\n\r\n" .. args[6]
  if args[7] == "GET" then
    tail = "\r\n\r\n"
  end
  if ids == "none" then
    head = head .. tail
  else
    read_tokens(args)
  end
end

function read_tokens(args)
  local file = assert(io.open(args[1] .. "/" .. number, "rb"))
  width = #file:read("*l") + 1
  file:seek("set", tonumber(args[2]) * width)
  count = tonumber(args[3])
  tokens = file:read(count * width) or ""
  file:close()
  assert(#tokens == count * width, "the file has fewer tokens than requested")
end

function request()
  if ids == "none" then
    return head
  end
  if sent == count then
    if not again then
      ran_out = ran_out + 1
      wrk.thread:stop()
    end
    sent = 0
  end
  local first = sent * width + 1
  sent = sent + 1
  local key, token = "", ""
  if ids ~= "token" then
    key = "\r\nIdempotency-Key: " .. string.sub(tokens, first, first + KEY - 1)
  end
  if ids ~= "key" then
    token = "\r\nOnceward-Token: " .. string.sub(tokens, first, first + width - 2)
  end
  return head .. key .. token .. tail
end

function response(status)
  if status ~= expected then
    unexpected = unexpected + 1
    unexpected_status = status
  end
end

local function total(name)
  local sum = 0
  for _, thread in ipairs(threads) do
    sum = sum + thread:get(name)
  end
  return sum
end

local function last(name)
  local value = 0
  for _, thread in ipairs(threads) do
    value = math.max(value, thread:get(name))
  end
  return value
end

function done(summary, latency)
  local errors = summary.errors
  print(string.format(
    "figures requests=%d micros=%d p50=%d p99=%d ran_out=%d unexpected=%d unexpected_status=%d broken=%d",
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99), total("ran_out"),
    total("unexpected"), last("unexpected_status"), errors.connect + errors.read + errors.write + errors.timeout
  ))
end
