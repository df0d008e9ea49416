// Opens each page of the site in a frame, as wide as a telephone and as a screen, in light and dark colours, and tells
// what it found. A page is loaded once: its own switch changes the colours.
const WIDTHS = [390, 1280];
const SCHEMES = { light: "default", dark: "slate" };
const PATIENCE = 15_000;

const frame = document.querySelector("iframe");

function tell(found) {
  return fetch("/told", { method: "POST", body: JSON.stringify(found) });
}

async function open(path) {
  const loaded = new Promise((resolve) => frame.addEventListener("load", resolve, { once: true }));
  frame.src = path;
  await loaded;
  return frame.contentDocument;
}

async function until(condition, patience = PATIENCE) {
  const end = performance.now() + patience;
  while (!condition() && performance.now() < end) {
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  return condition();
}

// Each look of a page. Between two of them one thing changes, because a change of a long page takes long.
async function* looks(page) {
  for (const [width, names] of [[WIDTHS[0], ["light", "dark"]], [WIDTHS[1], ["dark", "light"]]]) {
    frame.style.width = `${width}px`;
    // The theme moves its search and its menus to where they belong.
    await until(() => fits(page), 3_000);
    for (const name of names) {
      const isShown = await paint(page, SCHEMES[name]);
      yield { look: `${width} ${name}`, isShown, fits: fits(page) };
    }
  }
}

function fits({ documentElement: root }) {
  return root.scrollWidth <= root.clientWidth;
}

// By the switch of the theme.
function paint(page, scheme) {
  const followsSystem = '[data-md-color-media="(prefers-color-scheme)"]';
  page.querySelector(`input[data-md-color-scheme="${scheme}"]:not(${followsSystem})`).click();
  return until(() => page.body.dataset.mdColorScheme === scheme);
}

// What axe-core finds that is serious or critical. Colours and the focus of code follow a change of the page by moments.
async function faults(page) {
  let found = await search(page);
  for (let times = 0; found.length > 0 && times < 5; times++) {
    await new Promise((resolve) => setTimeout(resolve, 300));
    found = await search(page);
  }
  return found;
}

async function search(page) {
  const axe = frame.contentWindow.axe;
  const { violations } = await axe.run(page, { resultTypes: ["violations"] });
  return violations
    .filter(({ impact }) => ["serious", "critical"].includes(impact))
    .flatMap(({ id, nodes }) => nodes.map(({ html }) => `${id}: ${html.slice(0, 200)}`));
}

async function load(page, source) {
  const script = page.createElement("script");
  const loaded = new Promise((resolve) => script.addEventListener("load", resolve, { once: true }));
  script.src = source;
  page.head.append(script);
  await loaded;
}

const { pages, searched } = await (await fetch("/pages")).json();
for (const path of pages) {
  frame.style.width = `${WIDTHS[0]}px`;
  const page = await open(path);
  // Material puts what Mermaid drew in place of the text.
  const texts = () => page.querySelectorAll(".nebula-picture > pre");
  await until(() => texts().length === 0);
  const isSearched = searched.includes(path);
  if (isSearched) await load(page, "/axe.js");
  const seen = [];
  for await (const look of looks(page)) {
    seen.push({
      ...look,
      drawn: page.querySelectorAll(".nebula-picture > div").length,
      faults: isSearched ? await faults(page) : [],
    });
  }
  await tell({ path, seen, texts: [...texts()].map((text) => text.textContent.trim().slice(0, 200)) });
}

const page = await open("/?q=conflation");
const hits = () => [...page.querySelectorAll(".md-search-result__item a")].map((link) => link.getAttribute("href"));
await until(() => hits().length > 0);
await tell({ path: "search", hits: hits() });
await tell(null);
