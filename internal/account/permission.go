package account

import (
	"slices"
	"strings"
)

// Role is what a member may do in an org.
type Role string

// The roles of members.
const (
	RoleOwner    Role = "owner"
	RoleAdmin    Role = "admin" // of the org; an admin of the platform is Principal.Admin
	RoleMember   Role = "member"
	RoleOperator Role = "operator"
	RoleBilling  Role = "billing"
	RoleViewer   Role = "viewer"
)

// permissions is the permission table: the scopes of each role, and what it is for. A token has the scopes that it was
// created with and that its user's role still has. Every route and page requires one of a list of scopes (the variables
// Read… and Write… below), so that this table decides who may do what.
var permissions = []struct {
	Role   Role
	Scopes []string
	About  string
}{
	{RoleOwner, []string{ScopeRead, ScopeClusters, ScopeHosts, ScopeBilling, ScopeMembers},
		"may do everything, and decides who is an owner"},
	{RoleAdmin, []string{ScopeRead, ScopeClusters, ScopeHosts, ScopeBilling, ScopeMembers},
		"may do everything except change owners"},
	{RoleMember, []string{ScopeRead, ScopeClusters}, "rents clusters and sees everything"},
	{RoleOperator, []string{ScopeRead, ScopeHosts}, "runs hosts and sees everything"},
	{RoleBilling, []string{ScopeRead, ScopeBilling}, "manages payments and payouts, and sees everything"},
	{RoleViewer, []string{ScopeRead}, "sees everything, changes nothing"},
}

// What routes and pages require: one of these scopes. With ScopeRead everything of the org can be read; the other
// scopes allow changes, and reading what they change.
var (
	ReadClusters  = []string{ScopeRead, ScopeClusters}
	WriteClusters = []string{ScopeClusters}
	ReadHosts     = []string{ScopeRead, ScopeHosts}
	WriteHosts    = []string{ScopeHosts}
	ReadLeases    = []string{ScopeRead, ScopeClusters, ScopeHosts}
	ReadBilling   = []string{ScopeRead, ScopeBilling}
	WriteBilling  = []string{ScopeBilling}
	ReadPayouts   = []string{ScopeRead, ScopeHosts, ScopeBilling}
	ReadOrg       = []string{ScopeRead}
	ReadMembers   = []string{ScopeRead, ScopeMembers}
	WriteMembers  = []string{ScopeMembers}
)

// Roles returns all roles, the one with most rights first.
func Roles() []Role {
	out := make([]Role, len(permissions))
	for i, p := range permissions {
		out[i] = p.Role
	}
	return out
}

// Scopes returns what the role may do; nothing for a text that is no role.
func (r Role) Scopes() []string {
	for _, p := range permissions {
		if p.Role == r {
			return slices.Clone(p.Scopes)
		}
	}
	return nil
}

// About describes what the role is for, in words.
func (r Role) About() string {
	for _, p := range permissions {
		if p.Role == r {
			return p.About
		}
	}
	return ""
}

// Can reports whether the role has the scope.
func (r Role) Can(scope string) bool { return slices.Contains(r.Scopes(), scope) }

// RolesThatCan names the roles that have at least one of the scopes: "owner, admin or member".
func RolesThatCan(scopes []string) string {
	var names []string
	for _, p := range permissions {
		if slices.ContainsFunc(scopes, p.Role.Can) {
			names = append(names, string(p.Role))
		}
	}
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

// scopesNow returns which of a credential's scopes its user still has: those of the role, and ScopeAdmin for an admin
// of the platform.
func scopesNow(role Role, platformAdmin bool, scopes []string) []string {
	return slices.DeleteFunc(slices.Clone(scopes), func(s string) bool {
		if s == ScopeAdmin {
			return !platformAdmin
		}
		return !role.Can(s)
	})
}

// Whole reports whether the principal can do all that its user can: tokens with fewer scopes must not change what
// belongs to the user and not to the org. Tokens from before ScopeMembers existed count as whole.
func (p Principal) Whole() bool {
	return !slices.ContainsFunc(p.Role.Scopes(), func(s string) bool { return s != ScopeMembers && !p.Can(s) })
}
