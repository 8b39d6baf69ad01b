package api

import "github.com/musterhq/muster/internal/account"

// Who may call what. A token with ScopeRead sees everything of its org; the other scopes let it change things, and see
// what they change.
var (
	readClusters  = scoped(account.ScopeRead, account.ScopeClusters)
	writeClusters = scoped(account.ScopeClusters)
	readHosts     = scoped(account.ScopeRead, account.ScopeHosts)
	writeHosts    = scoped(account.ScopeHosts)
	readLeases    = scoped(account.ScopeRead, account.ScopeClusters, account.ScopeHosts)
	readBilling   = scoped(account.ScopeRead, account.ScopeBilling)
	writeBilling  = scoped(account.ScopeBilling)
	readPayouts   = scoped(account.ScopeRead, account.ScopeHosts, account.ScopeBilling)
	platformAdmin = scoped(account.ScopeAdmin)
)

// outside are the routes that are not the API's own: no token, no limits.
func (a *API) outside(t *table) {
	t.plain("GET", "/healthz", public, a.healthz)
	t.plain("GET", "/readyz", public, a.readyz)
	t.plain("GET", "/api/docs", public, a.docs)
	t.plain("GET", "/api/docs.css", public, a.docsStyle)
	t.plain("GET", Base+"/openapi.json", public, a.openAPI)
	t.plain("POST", "/stripe/webhook", public, a.stripeWebhook)
}

// inside are the routes of the API, below Base.
func (a *API) inside(t *table) {
	// The caller.
	postBy(t, "/signup", public, 201, "signUp: Make an account", a.signUp, withSecret)
	get(t, "/me", signedIn, "getMe: Who you are, and for which organisation", a.me)
	post(t, "/me/email-verification", signedIn, 202, "sendVerification: Have the link that proves your e-mail address sent again", a.sendVerification)
	get(t, "/org/legal", readBilling, "getLegal: Who your organisation is before the law, as invoices name it", a.getLegal)
	put(t, "/org/legal", writeBilling, "setLegal: Say who your organisation is: legal name, address, country, VAT id", a.setLegal)
	remove(t, "/org/legal", writeBilling, "eraseLegal: Have it forgotten", a.eraseLegal)
	get(t, "/tokens", signedIn, "listTokens: Your organisation's API tokens", a.listTokens)
	post(t, "/tokens", signedIn, 201, "createToken: Make an API token, within your own scopes", a.createToken, withSecret)
	remove(t, "/tokens/{id}", signedIn, "revokeToken: End a token at once", a.revokeToken)
	get(t, "/ssh-keys", readClusters, "listSSHKeys: Your organisation's SSH keys", a.listSSHKeys)
	post(t, "/ssh-keys", writeClusters, 201, "addSSHKey: Add a public key", a.addSSHKey)
	remove(t, "/ssh-keys/{id}", writeClusters, "deleteSSHKey: Delete a key", a.deleteSSHKey)
	get(t, "/ssh-gateway", readClusters, "getSSHGateway: Where ssh CLUSTER.RANK@… goes, and the keys it shows", a.sshGateway)

	// The market.
	get(t, "/offers", readClusters, "searchOffers: What can be rented now", a.searchOffers)
	postBy(t, "/quotes", writeClusters, 201, "createQuote: Hold GPUs at an all-in price for a short time", a.quote, withSpec)
	get(t, "/quotes/{id}", readClusters, "getQuote: Look at a quote", a.getQuote)
	remove(t, "/quotes/{id}", writeClusters, "returnQuote: Give a quote back", a.returnQuote)

	// Clusters.
	postBy(t, "/clusters", writeClusters, 202, "rentCluster: Rent a cluster", a.rent, withSpec)
	get(t, "/clusters", readClusters, "listClusters: Your organisation's clusters, newest first", a.listClusters)
	get(t, "/clusters/{id}", readClusters, "getCluster: Look at a cluster, now or when it is in a state", a.getCluster)
	postBy(t, "/clusters/{id}/actions", writeClusters, 200, "actOnCluster: Do one of the cluster's actions", a.actOnCluster)
	remove(t, "/clusters/{id}", writeClusters, "releaseCluster: End a cluster; again is no error", a.releaseCluster)
	get(t, "/clusters/{id}/events", readClusters, "listClusterEvents: What happened, when, why", a.clusterEvents)
	t.stream("GET", "/clusters/{id}/logs", readClusters, "streamClusterLogs: What the ranks print, as text", a.clusterLogs, logParams()...)
	t.stream("GET", "/clusters/{id}/ssh", writeClusters, "sshToCluster: SSH to a rank inside a WebSocket, with the token in place of a key", a.clusterSSH, sshParams()...)
	get(t, "/clusters/{id}/ports/{port}", writeClusters, "getPortLink: A link, good for a few minutes, that shows an HTTP port of a rank in a browser", a.portLink)
	get(t, "/clusters/{id}/metrics", readClusters, "getClusterMetrics: Utilisation, memory, power and temperature of each GPU", a.clusterMetrics)
	t.stream("GET", "/clusters/{id}/metrics/prometheus", readClusters, "scrapeCluster: The same and its cost, for your own Prometheus", a.clusterPrometheus, prometheusParams()...)
	get(t, "/clusters/{id}/usage", readClusters, "getClusterUsage: What it used and costs, segment by segment", a.clusterUsage)

	get(t, "/clusters/{id}/proof", readClusters, "getClusterProof: All that its bill depends on, to be checked without us", a.clusterProof)
	get(t, "/leases/{id}/proof", readLeases, "getLeaseProof: The same of one lease, for its renter and the operator of its host", a.leaseProof)

	// Hosts.
	post(t, "/host-enrollments", writeHosts, 201, "createEnrollment: A token with which one host enrols", a.enroll, withSecret)
	get(t, "/hosts", readHosts, "listHosts: Your organisation's hosts", a.listHosts)
	get(t, "/hosts/{id}", readHosts, "getHost: Look at a host", a.getHost)
	patch(t, "/hosts/{id}", writeHosts, "changeHost: Set name, price and terms", a.changeHost)
	postBy(t, "/hosts/{id}/actions", writeHosts, 200, "actOnHost: Drain, resume or retire a host", a.actOnHost)
	get(t, "/hosts/{id}/prices", readHosts, "listHostPrices: The last hundred changes of its prices, newest first", a.hostPrices)
	get(t, "/hosts/{id}/traffic", readHosts, "listHostTraffic: What leases did on the host's own line, the last hundred, told last first; kept for half a year", a.hostTraffic)
	get(t, "/hosts/{id}/earnings", readHosts, "getHostEarnings: What a host earned, per lease and per day", a.hostEarnings)

	// Money.
	get(t, "/earnings/statement", readHosts, "getEarningsStatement: What your hosts earned between two days, by host, day or lease: billed, fee, returned, in the holdback", a.earningsStatement)
	t.stream("GET", "/earnings/statement.csv", readHosts, "getEarningsStatementCSV: Its lines as a table", a.earningsStatementCSV, earningsParams()...)
	get(t, "/payouts/balance", readHosts, "getPayoutBalance: What your hosts earned, in the holdback and payable", a.payoutBalance)
	get(t, "/payouts", readPayouts, "listPayouts: What was sent to you, newest first", a.listPayouts)
	t.stream("GET", "/payouts/year.csv", readPayouts, "getPayoutYear: A calendar year for the tax return: earned, given back, paid and taken back, month by month", a.payoutYear, yearParams()...)
	get(t, "/payouts/{id}", readPayouts, "getPayout: Look at a payout", a.getPayout)
	get(t, "/payouts/account", readPayouts, "getPayoutAccount: Where you are paid, and what Stripe still wants to know", a.getPayoutAccount)
	postBy(t, "/payouts/account", writeBilling, 201, "setUpPayouts: The page of Stripe's on which you say who you are and where your bank is", a.setUpPayouts)
	post(t, "/budgets", writeBilling, 200, "setBudget: Set what your organisation, or one of its projects, may spend", a.setBudget)
	get(t, "/budgets", readBilling, "listBudgets: Budgets, and what is left of them", a.listBudgets)
	get(t, "/budgets/{id}", readBilling, "getBudget: Look at a budget", a.getBudget)
	remove(t, "/budgets/{id}", writeBilling, "removeBudget: Lift a budget; set again, it counts anew", a.removeBudget)
	get(t, "/ledger/head", public, "getLedgerHead: The newest batch of the chained books, to be noted and compared later", a.ledgerHead)
	get(t, "/billing/balance", readBilling, "getBalance: What there is, what is held, and how long it lasts", a.balance)
	get(t, "/billing/standing", readBilling, "getStanding: What may be added before e-mail address and card are verified", a.standing)
	get(t, "/billing/statement", readBilling, "getStatement: What was billed between two days, by cluster, day, project, lease or label", a.statement)
	t.stream("GET", "/billing/statement.csv", readBilling, "getStatementCSV: Its lines as a table", a.statementCSV, statementParams()...)
	get(t, "/billing/invoices/{month}", readBilling, "getInvoice: The invoice of a calendar month", a.invoice)
	get(t, "/billing/transactions", readBilling, "listTransactions: Your organisation's books, newest first", a.transactions)
	postBy(t, "/billing/topups", writeBilling, 201, "createTopUp: Add credit", a.topUp)
	get(t, "/billing/topups", readBilling, "listTopUps: Payments into the wallet, newest first", a.listTopUps)
	get(t, "/billing/topups/{id}", readBilling, "getTopUp: Look at a payment", a.getTopUp)
	get(t, "/billing/cards", readBilling, "listCards: Your organisation's cards", a.listCards)
	postBy(t, "/billing/cards", writeBilling, 201, "addCard: Open the page on which a card is saved", a.addCard)
	get(t, "/billing/card-setups/{id}", readBilling, "getCardSetup: Whether the card was saved", a.getCardSetup)
	patch(t, "/billing/cards/{id}", writeBilling, "changeCard: Make a card the default one", a.changeCard)
	remove(t, "/billing/cards/{id}", writeBilling, "removeCard: Forget a card", a.removeCard)
	get(t, "/billing/refunds", readBilling, "listRefunds: What can be given back, and what was", a.listRefunds)
	postBy(t, "/billing/refunds", writeBilling, 201, "createRefund: Give unused balance back to the cards that paid it", a.giveBack)
	postBy(t, "/billing/promo", writeBilling, 201, "redeemCode: Add a code's credit", a.redeem)
	get(t, "/billing/postpaid", readBilling, "getPostpaid: Whether you pay afterwards, up to which limit, and what of it is used", a.postpaidTerms)
	get(t, "/billing/auto-topup", readBilling, "getAutoTopUp: Whether credit is added by itself", a.getAutoTopUp)
	patch(t, "/billing/auto-topup", writeBilling, "setAutoTopUp: Add credit by itself when little is available, or no longer", a.setAutoTopUp)

	// The platform's operators.
	get(t, "/admin/promo-codes", platformAdmin, "listPromoCodes: Codes that give credit away", a.listPromos)
	post(t, "/admin/promo-codes", platformAdmin, 201, "createPromoCode: Give credit away by code", a.createPromo)
	post(t, "/admin/promo-codes/{code}/disable", platformAdmin, 200, "disablePromoCode: End a code now; credit that it gave stays", a.disablePromo)
	get(t, "/admin/books", platformAdmin, "getBooks: The trial balance, and what is wrong with it", a.books)
	get(t, "/admin/transactions", platformAdmin, "searchBooks: Entries of the books by id, key or what they belong to", a.searchBooks)
	post(t, "/admin/transactions/{id}/compensate", platformAdmin, 201, "compensateCharge: Give a charge back, at most what it was, with a reason", a.compensate)
	get(t, "/admin/frozen-leases", platformAdmin, "listFrozenLeases: Leases whose money waits because their host signed two accounts of the same time", a.frozenLeases)
	post(t, "/admin/leases/{id}/unfreeze", platformAdmin, 200, "unfreezeLease: Let a frozen lease's money move again; the first account stands", a.unfreeze)
	get(t, "/admin/quarantine", platformAdmin, "listQuarantine: Usage segments that were refused, newest first", a.quarantine)
	get(t, "/admin/payouts", platformAdmin, "listAllPayouts: Everybody's payouts, newest first", a.listAllPayouts)
	post(t, "/admin/payouts", platformAdmin, 201, "payNow: Pay an operator outside the schedule", a.payNow)
	post(t, "/admin/payouts/{id}/reverse", platformAdmin, 202, "reversePayout: Take a payout back, or a part of it, with a reason; payouts to the operator stop", a.reversePayout)
	get(t, "/admin/payout-reviews", platformAdmin, "listPayoutReviews: Operators and renters who are linked, and what of their earnings waits for it, newest first", a.listPayoutReviews)
	post(t, "/admin/payout-reviews/{id}/release", platformAdmin, 200, "releasePayoutReview: Let what is in review become payable as usual, with a reason", a.releasePayoutReview)
	post(t, "/admin/payout-reviews/{id}/refuse", platformAdmin, 200, "refusePayoutReview: Keep what is in review from the operator for good, with a reason", a.refusePayoutReview)
	patch(t, "/admin/operators/{id}", platformAdmin, "changeOperator: Set the fee on an operator's new leases; stop payouts to them or let them go on; with a reason", a.changeOperator)
	get(t, "/admin/postpaid", platformAdmin, "listPostpaid: Organisations that pay afterwards or did, and what of their limits is used", a.listPostpaid)
	patch(t, "/admin/postpaid/{id}", platformAdmin, "changePostpaid: Let an organisation pay afterwards up to a limit, or no longer, with a reason", a.changePostpaid)
	get(t, "/admin/reconciliation", platformAdmin, "getReconciliation: Stripe's balance beside the books", a.reconciliation)
}
