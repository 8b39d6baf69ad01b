package api

import "github.com/musterhq/muster/internal/account"

// Who may call what. A token with ScopeRead sees everything of its org; the other scopes let it change things, and see
// what they change.
var (
	readClusters  = scoped(account.ScopeRead, account.ScopeClusters)
	writeClusters = scoped(account.ScopeClusters)
	readHosts     = scoped(account.ScopeRead, account.ScopeHosts)
	writeHosts    = scoped(account.ScopeHosts)
	readBilling   = scoped(account.ScopeRead, account.ScopeBilling)
	writeBilling  = scoped(account.ScopeBilling)
)

// outside are the routes that are not the API's own: no token, no limits.
func (a *API) outside(t *table) {
	t.plain("GET", "/healthz", public, a.healthz)
	t.plain("GET", "/readyz", public, a.readyz)
	t.plain("GET", "/api/docs", public, a.docs)
	t.plain("GET", Base+"/openapi.json", public, a.openAPI)
}

// inside are the routes of the API, below Base.
func (a *API) inside(t *table) {
	// The caller.
	postBy(t, "/signup", public, 201, "signUp: Make an account", a.signUp, withSecret)
	get(t, "/me", signedIn, "getMe: Who you are, and for which organisation", a.me)
	get(t, "/tokens", signedIn, "listTokens: Your organisation's API tokens", a.listTokens)
	post(t, "/tokens", signedIn, 201, "createToken: Make an API token, within your own scopes", a.createToken, withSecret)
	remove(t, "/tokens/{id}", signedIn, "revokeToken: End a token at once", a.revokeToken)
	get(t, "/ssh-keys", readClusters, "listSSHKeys: Your organisation's SSH keys", a.listSSHKeys)
	post(t, "/ssh-keys", writeClusters, 201, "addSSHKey: Add a public key", a.addSSHKey)
	remove(t, "/ssh-keys/{id}", writeClusters, "deleteSSHKey: Delete a key", a.deleteSSHKey)

	// The market.
	get(t, "/offers", readClusters, "searchOffers: What can be rented now", a.searchOffers)
	postBy(t, "/quotes", writeClusters, 201, "createQuote: Hold GPUs at an all-in price for a short time", a.quote, withSpec)
	get(t, "/quotes/{id}", readClusters, "getQuote: Look at a quote", a.getQuote)
	remove(t, "/quotes/{id}", writeClusters, "returnQuote: Give a quote back", a.returnQuote)
}
