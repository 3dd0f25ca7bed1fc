// Keyboard navigation of tabs: one tab stop, arrow keys within it.

export function keyboardTabs(list, choose) {
  const all = [...list.querySelectorAll("[role=tab]")];
  const select = (tab) => {
    for (const other of all) {
      other.setAttribute("aria-selected", String(other === tab));
      other.tabIndex = other === tab ? 0 : -1;
    }
    document.getElementById(tab.getAttribute("aria-controls")).setAttribute("aria-labelledby", tab.id);
    choose(tab.id);
  };
  const steps = { ArrowRight: 1, ArrowLeft: -1 };
  list.addEventListener("click", (event) => {
    const tab = event.target.closest("[role=tab]");
    if (tab) select(tab);
  });
  list.addEventListener("keydown", (event) => {
    const at = all.indexOf(event.target);
    if (at < 0) return;
    const ends = { Home: 0, End: all.length - 1 };
    const next = event.key in steps ? (at + steps[event.key] + all.length) % all.length : ends[event.key];
    if (next === undefined) return;
    event.preventDefault();
    all[next].focus();
    select(all[next]);
  });
}
