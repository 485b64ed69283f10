// The frame of the console: login, navigation, and which page is where.
import { effect, signal } from "@preact/signals";
import { Component, type ComponentChildren, type ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { LocationProvider, Route, Router, useLocation } from "preact-iso";
import { lost } from "./api";
import { Login, login } from "./login";
import { config } from "./oidc";
import { Channels } from "./pages/channels";
import { Cluster } from "./pages/cluster";
import { Coming } from "./pages/coming";
import { Failed } from "./pages/failed";
import { MessagePage } from "./pages/message";
import { Messages } from "./pages/messages";
import { Now } from "./pages/now";
import { Series } from "./pages/series";
import { Tenants } from "./pages/tenants";
import { Page } from "./parts";
import { type Scope, actFor, caller, credential, isAdmin, leave, may, tenant } from "./session";
import { ActFor, Who } from "./who";

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
  { path: "/console/failed", name: "Failed", scope: "sched:r", page: Failed },
  { path: "/console/series", name: "Series", scope: "sched:r", page: Series },
  { path: "/console/channels", name: "Channels", scope: "ops:r", page: Channels },
  { path: "/console/cluster", name: "Cluster", scope: "ops:r", page: Cluster },
  { path: "/console/tenants", name: "Tenants and keys", scope: "admin", page: Tenants },
];

export function App() {
  useEffect(() => void login(), [credential.value]);
  if (!caller.value) return <Login />;
  return (
    <LocationProvider scope="/console">
      <Frame />
    </LocationProvider>
  );
}

function Frame() {
  const { path, url } = useLocation();
  const allowed = places.filter((p) => may(p.scope));
  const [open, setOpen] = useState(false); // on a phone
  useEffect(() => setOpen(false), [url]);
  return (
    <div class="frame">
      <a class="skip" href="#page">Skip to the page</a>
      <header class={open ? "bar open" : "bar"}>
        <a class="brand" href="/console">Postdate</a>
        <button class="small secondary menu" aria-expanded={open} aria-controls="menu" onClick={() => setOpen(!open)}>Menu</button>
        <div id="menu">
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
        </div>
      </header>
      <main id="page" tabIndex={-1}>
        {lost.value && <p role="alert" class="fault">{lost.value} The page shows what was true before, and tries again.</p>}
        {tenant.value && (
          <p class="acting">
            <span>You act for tenant <b>{tenant.value}</b>: its messages, inboxes and channels are shown.</span>
            <button class="small secondary" onClick={() => actFor("")}>Back to my own</button>
          </p>
        )}
        <Boundary url={url}>
          <Router>
            {places.map((p) => <Route key={p.path} path={p.path} component={may(p.scope) ? p.page : Home} />)}
            <Route path="/console" component={Home} />
            <Route default component={Nowhere} />
          </Router>
        </Boundary>
      </main>
    </div>
  );
}

interface BoundaryProps { url: string; children: ComponentChildren }

/** Boundary says that a page could not be drawn, until the address changes. The frame around it stays. */
class Boundary extends Component<BoundaryProps, { url: string; broken: boolean }> {
  override state = { url: this.props.url, broken: false };

  static override getDerivedStateFromProps({ url }: BoundaryProps, state: { url: string }) {
    return url === state.url ? null : { url, broken: false };
  }

  static override getDerivedStateFromError() {
    return { broken: true };
  }

  override render() {
    return this.state.broken ? <Undrawn /> : this.props.children;
  }
}

function Undrawn() {
  return (
    <Page title="This page could not be drawn" about="There is a fault in the console, or something here that it cannot show. The other pages work.">
      <button onClick={() => location.reload()}>Load it again</button>
    </Page>
  );
}

/** Home leads to the first page that the caller may see: they may have logged in where somebody else was before. */
function Home() {
  const { route } = useLocation();
  const first = places.find((p) => may(p.scope));
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
    <Page title="There is no such page" about="The address is wrong.">
      <a href="/console">To the first page</a>
    </Page>
  );
}

/** Identity says who is logged in, and for which tenant. */
function Identity() {
  const c = caller.value!;
  return (
    <div class="identity">
      {c.asked && <Who caller={c} />}
      {c.asked && isAdmin.value && <ActFor own={c.tenant} />}
      <Theme />
      {c.asked && <button class="secondary" onClick={() => leave("")}>Log out</button>}
      <small>Version {config.value?.version}</small>
    </div>
  );
}

const themes = ["auto", "light", "dark"];
const theme = signal(localStorage.getItem("postdate.theme") ?? "auto");
const dark = matchMedia("(prefers-color-scheme: dark)");
const inTheDark = signal(dark.matches);
dark.addEventListener("change", () => (inTheDark.value = dark.matches));
effect(() => localStorage.setItem("postdate.theme", theme.value));
effect(() => {
  const auto = inTheDark.value ? "dark" : "light";
  document.documentElement.dataset.theme = theme.value === "auto" ? auto : theme.value;
});

function Theme() {
  return (
    <label>
      <span class="hidden">Colours</span>
      <select value={theme.value} onChange={(event) => (theme.value = event.currentTarget.value)}>
        {themes.map((name) => <option key={name} value={name}>{name}</option>)}
      </select>
    </label>
  );
}
