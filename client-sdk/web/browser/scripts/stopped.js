// A page that checks its form before it is sent.
document.querySelector("form").addEventListener("submit", (event) => {
  if (!event.target.querySelector("[name=item]").value) event.preventDefault();
});
