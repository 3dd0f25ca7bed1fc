// A page that checks its form before it is sent.
document.querySelector("form").addEventListener("submit", (event) => {
  if (!event.target.elements.item.value) event.preventDefault();
});
