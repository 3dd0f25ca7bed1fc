// Submits to every rejection with the browser SDK, and prints its decisions: for each code, one per format.

const [module, url, codes, formats] = process.argv.slice(2);
const { createOnceward } = await import(module);

/** A rejection with `same` is retried: the deadline and the number of requests show how long. */
async function decide(code, format) {
  let sent = 0;
  const counting = (...call) => (sent++, fetch(...call));
  const onceward = createOnceward({ baseUrl: url, fetch: counting, limit: 20_000 });
  const { outcome, problem } = await onceward.fetch(`${url}/${format}/${code}`, { method: "POST", key: `${code}-${format}` });
  return `${outcome} after ${sent} ${problem?.code} ${problem?.retry}`;
}

const decisions = codes.split(",").map((code) => Promise.all(formats.split(",").map((format) => decide(code, format))));
console.log(JSON.stringify(await Promise.all(decisions)));
