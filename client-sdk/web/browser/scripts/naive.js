// A common naive script: one token when the page loads, and a button that is disabled on click.
const form = document.querySelector("[data-naive]");
const field = document.createElement("input");
field.type = "hidden";
field.name = "_onceward";
form.prepend(field);
fetch("../token", { method: "POST" })
  .then((answer) => answer.json())
  .then(({ token }) => {
    field.value = token;
    form.dataset.ready = "";
  });
form.addEventListener("submit", (event) => {
  event.submitter.disabled = true;
});
