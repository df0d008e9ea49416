// Opens each page of the site in a frame as narrow as a telephone, and tells what it found.
const WIDTH = 390;
const PATIENCE = 15_000;

const frame = document.querySelector("iframe");
frame.style.width = `${WIDTH}px`;

function tell(found) {
  return fetch("/told", { method: "POST", body: JSON.stringify(found) });
}

async function open(path) {
  const loaded = new Promise((resolve) => frame.addEventListener("load", resolve, { once: true }));
  frame.src = path;
  await loaded;
  return frame.contentDocument;
}

async function until(condition) {
  const end = performance.now() + PATIENCE;
  while (!condition() && performance.now() < end) {
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return condition();
}

for (const path of await (await fetch("/pages")).json()) {
  const page = await open(path);
  // Material puts what Mermaid drew in place of the text.
  const texts = () => page.querySelectorAll(".nebula-picture > pre");
  await until(() => texts().length === 0);
  await tell({
    path,
    width: page.documentElement.scrollWidth,
    drawn: page.querySelectorAll(".nebula-picture > div").length,
    texts: [...texts()].map((text) => text.textContent.trim().slice(0, 200)),
  });
}

const page = await open("/?q=conflation");
const hits = () => [...page.querySelectorAll(".md-search-result__item a")].map((link) => link.getAttribute("href"));
await until(() => hits().length > 0);
await tell({ path: "search", hits: hits() });
await tell(null);
