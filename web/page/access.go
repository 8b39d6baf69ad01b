package page

import (
	"net/http"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/fault"
)

// Access is who may open a page. The domain limits what a page shows and does to the visitor's own organisation.
type Access struct {
	anybody bool
	staff   bool     // for everybody else the page does not exist
	scopes  []string // one of them suffices; empty: every member
}

// The rules of who may open a page. Which roles have a scope is in account's permission table.
var (
	Anybody       = Access{anybody: true}
	SignedIn      = Access{}
	PlatformAdmin = Access{staff: true}

	ReadClusters  = Access{scopes: account.ReadClusters}
	WriteClusters = Access{scopes: account.WriteClusters}
	ReadHosts     = Access{scopes: account.ReadHosts}
	WriteHosts    = Access{scopes: account.WriteHosts}
	ReadBilling   = Access{scopes: account.ReadBilling}
	WriteBilling  = Access{scopes: account.WriteBilling}
	ReadPayouts   = Access{scopes: account.ReadPayouts}
	ReadOrg       = Access{scopes: account.ReadOrg}
	ReadMembers   = Access{scopes: account.ReadMembers}
	WriteMembers  = Access{scopes: account.WriteMembers}
)

// check returns nil if the visitor, who is signed in, may open the page.
func (a Access) check(who account.Principal) error {
	switch {
	case a.anybody:
		return nil
	case a.staff && !who.Admin:
		return fault.New(fault.NotFound, "page not found")
	case len(a.scopes) > 0 && !who.CanAny(a.scopes...):
		return fault.New(fault.Forbidden, "your role in %s, %s, does not allow it. These roles do: %s. An owner or admin of "+
			"the organisation can change your role.", who.OrgName, who.Role, account.RolesThatCan(a.scopes))
	}
	return nil
}

// checkOrg returns a Conflict fault if a form about an organisation was shown while the visitor was in another one:
// they have switched in another tab since, and what they send is meant for the first one. Render adds the field to
// every form. Forms about the user, such as that which signs out, have no scopes and are not checked.
func checkOrg(v *Visit, rule Access) error {
	if len(rule.scopes) == 0 || v.R.Method != http.MethodPost {
		return nil
	}
	if org := v.R.PostFormValue(orgField); org != "" && org != v.Who.Org.String() {
		return fault.New(fault.Conflict, "this page was opened for another organisation than the one that you are in "+
			"now, %s. "+
			"Nothing was changed. Load the page again, or switch back on your account page.", v.Who.OrgName)
	}
	return nil
}
