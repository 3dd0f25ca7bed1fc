// A page that adds its form after it has loaded.
setTimeout(() => {
  document.querySelector("main").innerHTML =
    '<form method="post" action="../orders" data-onceward><input name="item"><button>Order</button></form>';
}, 200);
