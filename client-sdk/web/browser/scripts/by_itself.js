// A page that sends its guarded form itself.
const form = document.querySelector("form");
const said = document.querySelector("output");
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const body = new URLSearchParams(new FormData(form, event.submitter));
  const answer = await fetch(form.action, { method: "POST", body }).catch(() => null);
  onceward.answered(form, answer);
  said.append(`${answer?.headers.get("onceward-outcome") ?? "lost"} `);
});
