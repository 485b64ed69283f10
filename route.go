package postdate

import "strings"

// Route is one tenant's part of a channel: the unit of what is claimed, limited, paused and parked
// together, so that no tenant's messages hold up another's. Its text is the channel for
// [DefaultTenant], and "@TENANT CHANNEL" for others.
type Route string

// routeMark begins the routes of tenants other than the default one. No channel begins with it,
// and no tenant has a space.
const routeMark = "@"

// RouteOf returns the route of a tenant's messages to a channel.
func RouteOf(tenant string, channel Channel) Route {
	if tenant == DefaultTenant {
		return Route(channel)
	}
	return Route(routeMark + tenant + " " + string(channel))
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

// Split returns the tenant and the channel, which is empty for all of them.
func (r Route) Split() (tenant string, channel Channel) {
	if rest, marked := strings.CutPrefix(string(r), routeMark); marked {
		tenant, name, _ := strings.Cut(rest, " ")
		return tenant, Channel(name)
	}
	return DefaultTenant, Channel(r)
}

// Tenant returns whose messages take the route.
func (r Route) Tenant() string {
	tenant, _ := r.Split()
	return tenant
}

// Channel returns where the route leads to.
func (r Route) Channel() Channel {
	_, channel := r.Split()
	return channel
}
