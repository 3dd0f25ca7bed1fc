// Runs in a page: finds text with low contrast.

/** Returns the texts whose contrast to their background is below 4.5, or 3 for large text. */
export function lowContrasts() {
  const parse = (colour) => (colour.match(/[\d.]+/g) ?? []).map(Number);
  const light = (colour) => {
    const linear = colour.slice(0, 3).map((part) => part / 255).map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] > 0.99) return colour;
    }
    return [255, 255, 255];
  };
  const low = [];
  for (const element of document.querySelectorAll("body *")) {
    const text = [...element.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data.trim()).join("");
    if (!text || !element.checkVisibility() || element.closest("noscript")) continue;
    const style = getComputedStyle(element);
    const [one, other] = [light(parse(element.matches("svg text") ? style.fill : style.color)), light(behind(element))].sort((a, b) => b - a);
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    if ((one + 0.05) / (other + 0.05) < (isLarge ? 3 : 4.5)) low.push(`${text.slice(0, 30)}: ${((one + 0.05) / (other + 0.05)).toFixed(2)}`);
  }
  return low;
}
