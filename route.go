package postdate

import (
	"slices"
	"strings"
)

// Route is one tenant's part of a channel at one priority: the unit of what is claimed and parked
// together, so that no messages hold up those of another tenant or of a higher priority. Its text is
// the channel for [DefaultTenant] at [PriorityMedium], "@TENANT CHANNEL" for other tenants, and
// "@TENANT!PRIORITY CHANNEL" at other priorities.
type Route string

// routeMark begins the routes other than those of the default tenant at medium priority, and
// priorityMark ends the tenant there. No channel begins with a routeMark, and no tenant has a
// priorityMark or a space.
const (
	routeMark    = "@"
	priorityMark = "!"
)

// priorityMarks follow the tenant.
var priorityMarks = [...]string{PriorityMedium: "", PriorityHigh: priorityMark + priorityNames[PriorityHigh],
	PriorityLow: priorityMark + priorityNames[PriorityLow]}

// RouteOf returns the route of a tenant's messages to a channel, at medium priority. It also stands for
// the channel as a whole, where something is said of all priorities together.
func RouteOf(tenant string, channel Channel) Route { return RouteAt(tenant, channel, PriorityMedium) }

// RouteAt returns the route of a tenant's messages to a channel, at a priority.
func RouteAt(tenant string, channel Channel, p Priority) Route {
	if tenant == DefaultTenant && p == PriorityMedium {
		return Route(channel)
	}
	return Route(routeMark + tenant + priorityMarks[p] + " " + string(channel))
}

// At returns the route of the same tenant and channel at a priority.
func (r Route) At(p Priority) Route {
	tenant, channel := r.Split()
	return RouteAt(tenant, channel, p)
}

// AllOf returns what stands for all routes of a tenant, where something is said of them together. No
// message takes it.
func AllOf(tenant string) Route { return Route(routeMark + tenant + " ") }

// IsAll reports whether r stands for all routes of its tenant.
func (r Route) IsAll() bool {
	return strings.HasPrefix(string(r), routeMark) && strings.IndexByte(string(r), ' ') == len(r)-1
}

// IsAllOf reports whether r stands for all routes of this tenant.
func (r Route) IsAllOf(tenant string) bool {
	return r.IsAll() && string(r[len(routeMark):len(r)-1]) == tenant
}

// cut takes a route apart. The priority's name is empty for the medium one.
func (r Route) cut() (tenant, priority string, channel Channel) {
	rest, marked := strings.CutPrefix(string(r), routeMark)
	if !marked {
		return DefaultTenant, "", Channel(r)
	}
	tenant, name, _ := strings.Cut(rest, " ")
	tenant, priority, _ = strings.Cut(tenant, priorityMark)
	return tenant, priority, Channel(name)
}

// Split returns the tenant and the channel, which is empty for all of them.
func (r Route) Split() (tenant string, channel Channel) {
	tenant, _, channel = r.cut()
	return tenant, channel
}

// Tenant returns whose messages take the route.
func (r Route) Tenant() string {
	tenant, _, _ := r.cut()
	return tenant
}

// Channel returns where the route leads to.
func (r Route) Channel() Channel {
	_, _, channel := r.cut()
	return channel
}

// Priority returns the priority of the messages that take the route.
func (r Route) Priority() Priority {
	_, name, _ := r.cut()
	return Priority(max(slices.Index(priorityNames[:], name), 0))
}
