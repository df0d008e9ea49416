// Tables, pictures and code that are wider than the page scroll. A keyboard can scroll what it can reach.
const SCROLLING = ".md-typeset__scrollwrap, .md-typeset p:has(> img), .md-typeset pre > code";

const reachable = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    if (target.scrollWidth > target.clientWidth) target.tabIndex = 0;
    else target.removeAttribute("tabindex");
  }
});

// Material's own: it calls once it has put a frame around each table.
document$.subscribe(() => {
  for (const element of document.querySelectorAll(SCROLLING)) reachable.observe(element);
});
