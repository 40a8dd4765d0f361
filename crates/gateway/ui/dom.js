// Small helpers that build elements. Text always becomes a text node, so a name cannot become markup.

/** Creates an element: `h("td", { class: "name" }, "text", child)`. Attributes that are null or false are left out. */
export function h(name, attributes, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Creates an SVG element. */
export function svg(name, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes ?? {})) element.setAttribute(key, value);
  return element;
}

/** Replaces the children of an element, but only if they differ: focus, selection and open details stay. */
export function show(element, ...children) {
  const next = h("div", null, ...children);
  if (sameChildren(element, next)) return;
  patch(element, next);
}

function sameChildren(one, other) {
  return one.childNodes.length === other.childNodes.length
    && [...one.childNodes].every((child, at) => child.isEqualNode(other.childNodes[at]));
}

// Walks both trees and changes only what differs. Listeners belong to elements with a `data-key`, which are replaced when
// the key changes and kept otherwise.
function patch(from, to) {
  const [old, next] = [[...from.childNodes], [...to.childNodes]];
  next.forEach((node, at) => {
    const before = old[at];
    if (before === undefined) from.append(node);
    else if (before.isEqualNode(node)) return;
    else if (canPatch(before, node)) {
      patchAttributes(before, node);
      patch(before, node);
    } else before.replaceWith(node);
  });
  old.slice(next.length).forEach((node) => node.remove());
}

function canPatch(one, other) {
  return one.nodeType === Node.ELEMENT_NODE && other.nodeType === Node.ELEMENT_NODE
    && one.nodeName === other.nodeName && !one.nodeName.includes("-")
    && one.dataset?.key === other.dataset?.key && one.id === other.id;
}

function patchAttributes(from, to) {
  // The reader opens details, not the data.
  for (const { name } of [...from.attributes]) {
    if (!to.hasAttribute(name) && name !== "open") from.removeAttribute(name);
  }
  for (const { name, value } of [...to.attributes]) {
    if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  }
}
