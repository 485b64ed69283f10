// The frame of the console: login, navigation, and which page is where.
import { signal } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect } from "preact/hooks";
import { LocationProvider, Route, Router, useLocation } from "preact-iso";
import { lost } from "./api";
import { Login, login } from "./login";
import { Page } from "./parts";
import { type Scope, actFor, caller, isAdmin, leave, may, tenant } from "./session";
import { Coming } from "./pages/coming";
import { Failed } from "./pages/failed";
import { MessagePage } from "./pages/message";
import { Messages } from "./pages/messages";
import { Channels } from "./pages/channels";
import { Cluster } from "./pages/cluster";
import { Now } from "./pages/now";
import { Series } from "./pages/series";

/** Place is a page of the console, and the scope that its calls need. */
interface Place {
  path: string;
  name: string;
  scope: Scope;
  page: ComponentType;
  /** inside: another page leads to it, not the navigation. */
  inside?: boolean;
}

const places: Place[] = [
  { path: "/console/now", name: "Now", scope: "ops:r", page: Now },
  { path: "/console/coming", name: "Coming", scope: "sched:r", page: Coming },
  { path: "/console/messages", name: "Messages", scope: "sched:r", page: Messages },
  { path: "/console/message", name: "Message", scope: "sched:r", page: MessagePage, inside: true },
  { path: "/console/channels", name: "Channels", scope: "ops:r", page: Channels },
  { path: "/console/cluster", name: "Cluster", scope: "ops:r", page: Cluster },
  { path: "/console/series", name: "Series", scope: "sched:r", page: Series },
  { path: "/console/failed", name: "Failed", scope: "sched:r", page: Failed },
];

export function App() {
  useEffect(() => void login(), []);
  return (
    <LocationProvider scope="/console">
      {caller.value ? <Frame /> : <Login />}
    </LocationProvider>
  );
}

function Frame() {
  const { path } = useLocation();
  const allowed = places.filter((p) => may(p.scope));
  return (
    <div class="frame">
      <a class="skip" href="#page">Skip to the page</a>
      <header class="bar">
        <a class="brand" href="/console">Postdate</a>
        <nav aria-label="Pages">
          <ul>
            {allowed.filter((p) => !p.inside).map((p) => (
              <li key={p.path}>
                <a href={p.path} aria-current={path.startsWith(p.path) ? "page" : undefined}>{p.name}</a>
              </li>
            ))}
          </ul>
        </nav>
        <Identity />
      </header>
      <main id="page" tabIndex={-1}>
        {lost.value && <p role="alert" class="fault">{lost.value} The page shows what was true before, and tries again.</p>}
        <Router>
          {allowed.map((p) => <Route key={p.path} path={p.path} component={p.page} />)}
          <Route path="/console" component={() => <Home places={allowed} />} />
          <Route default component={Nowhere} />
        </Router>
      </main>
    </div>
  );
}

function Home(props: { places: Place[] }) {
  const { route } = useLocation();
  const first = props.places[0];
  useEffect(() => first && route(first.path, true), []);
  if (first) return null;
  return (
    <Page title="Postdate" about="This key is for no page of the console: it may neither read messages nor see the cluster.">
      <p>Ask an administrator for a key with the scope sched:r or ops:r.</p>
    </Page>
  );
}

function Nowhere() {
  return (
    <Page title="There is no such page" about="The address is wrong, or this key is not for that page.">
      <a href="/console">To the first page</a>
    </Page>
  );
}

/** Identity says who is logged in, and for which tenant. */
function Identity() {
  const c = caller.value!;
  return (
    <div class="identity">
      {isAdmin.value && c.asked && (
        <label>
          Act for tenant{" "}
          <input class="tenant" value={tenant.value} placeholder={c.tenant ?? "default"} maxLength={64}
            onChange={(event) => actFor(event.currentTarget.value.trim())} />
        </label>
      )}
      {c.asked && !isAdmin.value && <span>Tenant {c.tenant}</span>}
      <Theme />
      {c.asked && <button class="secondary" onClick={() => leave("")}>Log out</button>}
    </div>
  );
}

const themes = ["auto", "light", "dark"];
const theme = signal(localStorage.getItem("postdate.theme") ?? "auto");

function Theme() {
  useEffect(() => {
    localStorage.setItem("postdate.theme", theme.value);
    if (theme.value === "auto") document.documentElement.removeAttribute("data-theme");
    else document.documentElement.dataset.theme = theme.value;
  }, [theme.value]);
  return (
    <label>
      <span class="hidden">Colours</span>
      <select value={theme.value} onChange={(event) => (theme.value = event.currentTarget.value)}>
        {themes.map((name) => <option key={name} value={name}>{name}</option>)}
      </select>
    </label>
  );
}
