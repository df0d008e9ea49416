// The shell: sign-in, header, navigation, and the page of the route.

import { useSignal } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect, useRef } from "preact/hooks";
import ConnectionsPage from "./pages/connections";
import DeadLettersPage from "./pages/dead-letters";
import JobsPage from "./pages/jobs";
import MapPage from "./pages/map";
import OverviewPage from "./pages/overview";
import QueuesPage from "./pages/queues";
import ServicesPage from "./pages/services";
import TopicsPage from "./pages/topics";
import LastValuesPage from "./pages/values";
import { href, route } from "./router";
import { session } from "./session";
import { SignIn } from "./sign-in";
import { theme, type Theme } from "./theme";
import { ConfirmHost } from "./widgets/dialog";
import { Empty, NotAllowed } from "./widgets/states";
import { ToastHost } from "./widgets/toast";

interface Page {
  path: string;
  title: string;
  component: ComponentType;
  /** Verbs of the broker: without the right to call one of them there is nothing to see. */
  needs?: readonly [string, ...string[]];
}

const PAGES: readonly Page[] = [
  { path: "overview", title: "Overview", component: OverviewPage, needs: ["broker.status"] },
  { path: "services", title: "Services", component: ServicesPage },
  { path: "jobs", title: "Jobs", component: JobsPage },
  { path: "queues", title: "Queues", component: QueuesPage, needs: ["queues.list"] },
  { path: "topics", title: "Topics", component: TopicsPage },
  { path: "values", title: "Last values", component: LastValuesPage },
  { path: "dead-letters", title: "Dead letters", component: DeadLettersPage, needs: ["dlq.list"] },
  { path: "connections", title: "Connections", component: ConnectionsPage, needs: ["connections.list", "sessions.list"] },
  { path: "map", title: "Map", component: MapPage, needs: ["flows.list", "connections.list"] },
];

export function App() {
  const state = session.state.value;
  return (
    <>
      {state === "signed-out" || (state === "connecting" && session.epoch.value === 0) ? <SignIn /> : <Shell />}
      <ConfirmHost />
      <ToastHost />
    </>
  );
}

function Shell() {
  const isMenuOpen = useSignal(false);
  const main = useRef<HTMLElement>(null);
  const pages = PAGES.filter(({ needs }) => needs === undefined || needs.some((verb) => session.may(verb)));
  const { page: path } = route.value;
  const page = PAGES.find((each) => each.path === path) ?? (path === "" ? pages[0] : undefined);

  useEffect(() => {
    document.title = `${page?.title ?? "Not found"} · Nebula`;
    isMenuOpen.value = false;
    main.current?.scrollTo(0, 0);
  }, [page]);

  return (
    <div class="shell">
      <a class="skip" href={location.hash || "#/"} onClick={(event) => {
        event.preventDefault();
        main.current?.focus();
      }}>
        Skip to the content
      </a>
      <header class="top">
        <button
          type="button"
          class="icon menu"
          aria-label="Menu"
          aria-expanded={isMenuOpen.value}
          aria-controls="navigation"
          onClick={() => (isMenuOpen.value = !isMenuOpen.value)}
        >
          ☰
        </button>
        <a class="brand" href="#/">
          <Logo />
          <span>Nebula</span>
        </a>
        <Connection />
        <span class="spacer" />
        {session.principal.value !== null && (
          <span class="principal" title="Signed in as">
            {session.principal.value}
          </span>
        )}
        <ThemeSwitch />
        <button type="button" onClick={() => void session.signOut()}>
          {session.kind === "none" ? "Sign in" : "Sign out"}
        </button>
      </header>
      <nav id="navigation" class={isMenuOpen.value ? "side open" : "side"} aria-label="Pages">
        <ul>
          {pages.map((each) => (
            <li key={each.path}>
              <a href={href(each.path)} aria-current={each === page ? "page" : undefined}>
                {each.title}
              </a>
            </li>
          ))}
        </ul>
      </nav>
      <main ref={main} tabIndex={-1}>
        {session.state.value === "lost" && (
          <div class="note lost" role="alert">
            The broker cannot be reached. This page connects again as soon as it is back.
          </div>
        )}
        <Content page={page} />
      </main>
    </div>
  );
}

function Content({ page }: { page: Page | undefined }) {
  if (page === undefined) return <Empty title="There is no such page" />;
  if (page.needs !== undefined && !page.needs.some((verb) => session.may(verb))) return <NotAllowed verb={page.needs[0]} />;
  return <page.component key={page.path} />;
}

function Connection() {
  const isOpen = session.isOpen.value;
  return (
    <span class={isOpen ? "status ok" : "status bad"} role="status">
      {isOpen ? "connected" : "connecting …"}
    </span>
  );
}

const NEXT: Record<Theme, Theme> = { auto: "light", light: "dark", dark: "auto" };
const SIGNS: Record<Theme, string> = { auto: "◐", light: "☀", dark: "☾" };

export function ThemeSwitch() {
  const present = theme.value;
  return (
    <button
      type="button"
      class="icon"
      aria-label={`Colours: ${present}`}
      title={`Colours: ${present}`}
      onClick={() => (theme.value = NEXT[present])}
    >
      {SIGNS[present]}
    </button>
  );
}

export function Logo() {
  return (
    <svg class="logo" viewBox="0 0 32 32" aria-hidden="true">
      <rect width="32" height="32" rx="8" fill="var(--accent)" />
      <circle cx="16" cy="16" r="4.5" fill="#fff" />
      <ellipse
        cx="16"
        cy="16"
        rx="11.5"
        ry="4.6"
        fill="none"
        stroke="#fff"
        stroke-width="1.8"
        transform="rotate(-28 16 16)"
      />
    </svg>
  );
}
