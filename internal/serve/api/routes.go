package api

import (
	"github.com/danielgtaylor/huma/v2"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/fleet/cluster"
)

// The rules of who may call what: what account requires, and which roles have that is in its permission table.
var (
	readClusters  = scoped(account.ReadClusters...)
	writeClusters = scoped(account.WriteClusters...)
	readHosts     = scoped(account.ReadHosts...)
	writeHosts    = scoped(account.WriteHosts...)
	readLeases    = scoped(account.ReadLeases...)
	readBilling   = scoped(account.ReadBilling...)
	writeBilling  = scoped(account.WriteBilling...)
	readOrg       = scoped(account.ReadOrg...)
	readPayouts   = scoped(account.ReadPayouts...)
	readMembers   = scoped(account.ReadMembers...)
	writeMembers  = scoped(account.WriteMembers...)
	platformAdmin = access{name: account.ScopeAdmin, scopes: []string{account.ScopeAdmin}, staff: true}
)

// outside are the routes that are not the API's own: no token, no limits.
func (a *API) outside(t *table) {
	t.plain("GET", "/healthz", public, a.healthz)
	t.plain("GET", "/readyz", public, a.readyz)
	t.plain("GET", "/api/docs", public, a.docs)
	t.plain("GET", Base+"/openapi.json", public, a.openAPI)
	t.plain("POST", "/stripe/webhook", public, a.stripeWebhook)
}

// inside are the routes of the API, below Base.
func (a *API) inside(t *table) {
	// The caller.
	post(t, "/signup", public, 201, "signUp: Create an account", a.signUp, withSecret)
	post(t, "/device-logins", public, 201, "beginDeviceLogin: Begin a login of a program whose user grants it a token "+
		"in a "+
		"browser", a.beginDeviceLogin, withSecret)
	post(t, "/device-logins/token", public, 200, "pollDeviceLogin: Get whether a login was granted, and its token, once",
		a.pollDeviceLogin, withSecret)
	get(t, "/me", signedIn, "getMe: Get the caller: user, organisation, scopes", a.me)
	post(t, "/me/email-verification", signedIn, 202, "sendVerification: Send the link that verifies your e-mail "+
		"address again", a.sendVerification)
	t.streamAs("application/json", &huma.Schema{
		Type:                 huma.TypeObject,
		AdditionalProperties: true,
	}, "GET", "/me/export", readOrg, "exportMe: Export your personal data as JSON, without secrets", a.exportMe)
	get(t, "/me/deletion", signedIn, "getDeletion: List what keeps your account from being deleted", a.deletionStanding)
	put(t, "/me/deletion", signedIn, "deleteMe: Delete your account and personal data; receipts and other documents "+
		"are kept for as long as the law requires", a.deleteMe)
	get(t, "/org/legal", readBilling,
		"getLegal: Get your organisation's legal details, as receipts and statements name it", a.getLegal)
	put(t, "/me/password", signedIn, "changePassword: Change your password; your other sessions end", a.changePassword)
	get(t, "/me/sessions", signedIn, "listSessions: List your sessions in the dashboard, last used first", a.listSessions)
	remove(t, "/me/sessions/{id}", signedIn, "endSession: End one of your sessions", a.endSession)
	put(t, "/org/legal", writeBilling, "setLegal: Set your organisation's legal details: name, address, country, VAT id",
		a.setLegal)
	remove(t, "/org/legal", writeBilling, "eraseLegal: Delete your organisation's legal details", a.eraseLegal)
	get(t, "/org/zone", readBilling, "getZone: Get your organisation's time zone", a.getZone)
	put(t, "/org/zone", writeBilling, "setZone: Set the time zone in which your organisation's days, months and years "+
		"begin", a.setZone)
	get(t, "/me/orgs", signedIn, "listMyOrgs: List the organisations that you are a member of, and your role in each",
		a.listMyOrgs)
	get(t, "/me/invitations", signedIn, "listMyInvitations: List open invitations to your verified e-mail address",
		a.listMyInvitations)
	post(t, "/me/invitations/{id}/accept", signedIn, 200, "acceptInvitation: Accept an invitation: you become a member "+
		"of the organisation", a.acceptInvitation)
	remove(t, "/me/invitations/{id}", signedIn, "declineInvitation: Decline an invitation", a.declineInvitation)
	remove(t, "/me/membership", signedIn, "leaveOrg: Leave the organisation of this token; the token ends, too",
		a.leaveOrg)
	get(t, "/members", readMembers, "listMembers: List the members of your organisation and their roles", a.listMembers)
	patch(t, "/members/{id}", writeMembers, "changeMember: Change a member's role; rights that the new role lacks end at "+
		"once", a.changeMember)
	remove(t, "/members/{id}", writeMembers, "removeMember: Remove a member; their tokens, SSH keys and sessions of the "+
		"organisation end at once", a.removeMember)
	get(t, "/invitations", writeMembers, "listInvitations: List your organisation's open invitations, newest first",
		a.listInvitations)
	post(t, "/invitations", writeMembers, 201, "createInvitation: Invite a person by e-mail to become a member of your "+
		"organisation", a.createInvitation)
	remove(t, "/invitations/{id}", writeMembers, "withdrawInvitation: Withdraw an open invitation", a.withdrawInvitation)
	get(t, "/audit-events", readOrg, "listAuditEvents: List what members of your organisation did, newest first",
		a.ownAuditLog)
	get(t, "/notices", readOrg, "listNotices: List your organisation's notices, newest first", a.listNotices)
	post(t, "/notices/read", readOrg, 200, "readNotices: Mark a notice and all older ones as read", a.readNotices)
	post(t, "/notices/{id}/read", readOrg, 200, "readNotice: Mark a notice as read", a.readNotice)
	get(t, "/webhooks", readMembers, "listWebhooks: List your organisation's webhooks, newest first", a.listWebhooks)
	post(t, "/webhooks", writeMembers, 201, "createWebhook: Create a webhook: an address that receives every new notice",
		a.createWebhook, withSecret)
	remove(t, "/webhooks/{id}", writeMembers, "deleteWebhook: Delete a webhook and what it has not received",
		a.deleteWebhook)
	post(t, "/webhooks/{id}/enable", writeMembers, 200, "enableWebhook: Send notices to a disabled webhook again",
		a.enableWebhook)
	get(t, "/webhooks/{id}/deliveries", readMembers, "listDeliveries: List what a webhook received and what it has not, "+
		"newest first", a.listDeliveries)
	post(t, "/webhooks/{id}/deliveries/{notice}/retry", writeMembers, 200, "retryDelivery: Send a notice to a webhook "+
		"again", a.retryDelivery)
	get(t, "/tokens", signedIn, "listTokens: List your organisation's API tokens", a.listTokens)
	post(t, "/tokens", signedIn, 201, "createToken: Create an API token within your own scopes", a.createToken,
		withSecret)
	remove(t, "/tokens/{id}", signedIn, "revokeToken: Revoke an API token; it ends at once", a.revokeToken)
	get(t, "/ssh-keys", readClusters, "listSSHKeys: List your organisation's SSH keys", a.listSSHKeys)
	post(t, "/ssh-keys", writeClusters, 201, "addSSHKey: Add a public SSH key", a.addSSHKey)
	remove(t, "/ssh-keys/{id}", writeClusters, "deleteSSHKey: Delete an SSH key", a.deleteSSHKey)
	get(t, "/ssh-gateway", readClusters, "getSSHGateway: Get the address and host keys of the SSH gateway", a.sshGateway)

	// The market.
	get(t, "/offers", readClusters, "searchOffers: Search the offers that can be rented now", a.searchOffers)
	get(t, "/estimate", public, "getEstimate: Get the price that a cluster would have now, without an account; nothing "+
		"is held", a.estimate)
	post(t, "/quotes", writeClusters, 201, "createQuote: Create a quote: an all-in price whose GPUs are claimed for "+
		"a short time", a.quote, withSpec)
	get(t, "/quotes/{id}", readClusters, "getQuote: Get a quote", a.getQuote)
	remove(t, "/quotes/{id}", writeClusters, "returnQuote: Cancel a quote and free its GPUs", a.returnQuote)
	get(t, "/templates", readClusters, "listTemplates: List the built-in templates, and those of your organisation by "+
		"name", a.listTemplates)
	post(t, "/templates", writeClusters, 201, "createTemplate: Save a spec, or that of a cluster, as a template of your "+
		"organisation", a.createTemplate, withSpec)
	get(t, "/templates/{name}", readClusters, "getTemplate: Get a template", a.getTemplate)
	remove(t, "/templates/{name}", writeClusters, "deleteTemplate: Delete a template of your organisation",
		a.deleteTemplate)

	// Volumes.
	get(t, "/volumes", readClusters, "listVolumes: List your organisation's volumes by name", a.listVolumes)
	post(t, "/volumes", writeClusters, 201, "createVolume: Create an empty volume", a.createVolume)
	get(t, "/volumes/{id}", readClusters, "getVolume: Get a volume, with what is durable of it", a.getVolume)
	patch(t, "/volumes/{id}", writeClusters, "changeVolume: Change a volume's name, size or retention", a.changeVolume)
	remove(t, "/volumes/{id}", writeClusters, "deleteVolume: Delete a volume with all its snapshots; billing ends at "+
		"once", a.deleteVolume)
	get(t, "/volumes/{id}/snapshots", readClusters, "listVolumeSnapshots: List a volume's snapshots, newest first",
		a.listSnapshots)
	post(t, "/volumes/{id}/snapshots", writeClusters, 202, "snapshotVolume: Request a snapshot from the host that has "+
		"the volume", a.snapshotVolume)
	remove(t, "/volumes/{id}/snapshots/{seq}", writeClusters, "deleteVolumeSnapshot: Delete a snapshot other than the "+
		"last one", a.deleteSnapshot)
	post(t, "/volumes/{id}/restore", writeClusters, 200, "restoreVolume: Make an earlier snapshot the volume's present "+
		"state, as its next snapshot", a.restoreVolume)
	post(t, "/volumes/{id}/clones", writeClusters, 201, "cloneVolume: Create a volume from a snapshot; it costs nothing "+
		"until it changes", a.cloneVolume)
	get(t, "/volumes/{id}/files", readClusters, "listVolumeFiles: List a directory of a snapshot", a.listFiles)
	t.streamAs("*/*", &huma.Schema{Type: huma.TypeString}, "GET",
		"/volumes/{id}/content", readClusters, "getVolumeContent: Download a file of a snapshot", a.volumeContent,
		contentParams()...)
	put(t, "/volumes/{id}/transfers/{transfer}", writeClusters, "openTransfer: Open a transfer, which moves files "+
		"without a cluster; its answer has the volume's key", a.openTransfer)
	patch(t, "/volumes/{id}/transfers/{transfer}", writeClusters, "reportTransfer: Note how far a transfer is, and keep "+
		"it open", a.reportTransfer)
	remove(t, "/volumes/{id}/transfers/{transfer}", writeClusters, "closeTransfer: End a transfer; what is not committed "+
		"is removed", a.closeTransfer)
	post(t, "/volumes/{id}/transfers/{transfer}/numbers", writeClusters, 201, "reservePacks: Reserve numbers for the "+
		"packs of an upload", a.reservePacks)
	put(t, "/volumes/{id}/transfers/{transfer}/packs/{n}", writeClusters, "storePack: Get the request that stores a pack",
		a.storePack)
	get(t, "/volumes/{id}/transfers/{transfer}/packs/{n}", writeClusters, "readPack: Get the request that reads a pack",
		a.readPack)
	put(t, "/volumes/{id}/transfers/{transfer}/snapshot", writeClusters, "commitUpload: Make what an upload has sent the "+
		"volume's next snapshot", a.commitUpload)

	// Shared file systems.
	get(t, "/shared", readClusters, "listShared: List the shared file systems that hosts have, those that your "+
		"organisation declares, and those where it has data", a.listShared)
	post(t, "/shared", writeHosts, 201, "declareShared: Declare a shared file system of your hosts", a.declareShared)
	remove(t, "/shared/{id}", writeHosts, "withdrawShared: End the declaration of a shared file system; what is on it "+
		"stays there", a.withdrawShared)
	remove(t, "/shared/{id}/data", writeClusters, "eraseSharedData: Delete your organisation's data on a shared file "+
		"system", a.eraseShared)

	// Buckets.
	get(t, "/buckets", readClusters, "listBuckets: List your organisation's buckets by name", a.listBuckets)
	post(t, "/buckets", writeClusters, 201, "createBucket: Add a bucket of your own store, after a check of its "+
		"credentials", a.createBucket)
	get(t, "/buckets/{id}", readClusters, "getBucket: Get a bucket, without its secret", a.getBucket)
	patch(t, "/buckets/{id}", writeClusters, "rotateBucket: Replace a bucket's credentials, once its store accepts the "+
		"new ones", a.rotateBucket)
	remove(t, "/buckets/{id}", writeClusters, "deleteBucket: Delete a bucket and its credentials; what the store has "+
		"stays there", a.deleteBucket)
	post(t, "/buckets/{id}/check", writeClusters, 200, "checkBucket: Ask a bucket's store whether the credentials still "+
		"work", a.checkBucket)

	// Clusters.
	post(t, "/clusters", writeClusters, 202, "rentCluster: Rent a cluster", a.rent, withSpec)
	getEncoded[list[cluster.Cluster]](t, "/clusters", readClusters,
		"listClusters: List and search your organisation's clusters", a.listClusters)
	get(t, "/clusters/{id}", readClusters, "getCluster: Get a cluster, now or once it is in a given state", a.getCluster)
	post(t, "/clusters/{id}/actions", writeClusters, 200, "actOnCluster: Release or restart a cluster", a.actOnCluster)
	remove(t, "/clusters/{id}", writeClusters, "releaseCluster: Release a cluster; repeating it is no error",
		a.releaseCluster)
	get(t, "/clusters/{id}/events", readClusters, "listClusterEvents: List the events of a cluster", a.clusterEvents)
	t.stream("GET", "/clusters/{id}/logs", readClusters, "streamClusterLogs: Stream the output of a cluster's ranks "+
		"as text", a.clusterLogs, logParams()...)
	t.stream("GET", "/clusters/{id}/ssh", writeClusters, "sshToCluster: Open SSH to a rank over a WebSocket, "+
		"authenticated by the API token", a.clusterSSH, sshParams()...)
	get(t, "/clusters/{id}/ports/{port}", writeClusters, "getPortLink: Create a link, valid for a few minutes, to an "+
		"HTTP port of a rank", a.portLink)
	get(t, "/clusters/{id}/metrics", readClusters, "getClusterMetrics: Get utilisation, memory, power and temperature "+
		"of each GPU of a cluster", a.clusterMetrics)
	t.stream("GET", "/clusters/{id}/metrics/prometheus", readClusters,
		"scrapeCluster: Get a cluster's GPU metrics and cost in Prometheus format", a.clusterPrometheus,
		prometheusParams()...)
	get(t, "/clusters/{id}/usage", readClusters, "getClusterUsage: Get the usage and cost of a cluster by segment",
		a.clusterUsage)

	get(t, "/clusters/{id}/proof", readClusters, "getClusterProof: Get everything that a cluster's bill depends on, to "+
		"verify it without us", a.clusterProof)
	get(t, "/leases/{id}/proof", readLeases, "getLeaseProof: Get everything that one lease's bill depends on, as its "+
		"renter or the operator of its host", a.leaseProof)

	// Hosts.
	post(t, "/host-enrollments", writeHosts, 201, "createEnrollment: Create a token with which one host enrols",
		a.enroll, withSecret)
	get(t, "/hosts", readHosts, "listHosts: List your organisation's hosts", a.listHosts)
	get(t, "/gpus/contested", readHosts, "listContestedGPUs: List GPUs of your organisation's hosts that hosts of other "+
		"organisations list, too, up to 200", a.contestedGPUs)
	get(t, "/hosts/{id}", readHosts, "getHost: Get a host", a.getHost)
	patch(t, "/hosts/{id}", writeHosts, "changeHost: Change a host's name, price, terms or data cap", a.changeHost)
	post(t, "/hosts/{id}/actions", writeHosts, 200, "actOnHost: Drain, reclaim, resume or retire a host, or "+
		"requalify one of its GPUs", a.actOnHost)
	get(t, "/hosts/{id}/reclaim", readHosts, "forecastReclaim: Get what reclaiming a host now would cost",
		a.reclaimForecast)
	get(t, "/hosts/{id}/metrics", readHosts, "getHostMetrics: Get what a host's GPUs do, and how fast they run",
		a.hostMetrics)
	get(t, "/hosts/{id}/prices", readHosts, "listHostPrices: List the last hundred price changes of a host, newest first",
		a.hostPrices)
	get(t, "/price-guide", readHosts, "getPriceGuide: Get how other operators price a GPU model now", a.priceGuide)
	get(t, "/hosts/{id}/traffic", readHosts, "listHostTraffic: List the traffic of the last hundred leases on a host's "+
		"own line, latest report first; kept for half a year", a.hostTraffic)
	get(t, "/hosts/{id}/earnings", readHosts, "getHostEarnings: Get a host's earnings by lease and day", a.hostEarnings)

	// Money.
	get(t, "/earnings/statement", readHosts, "getEarningsStatement: Get what your hosts earned between two days, by "+
		"host, day or lease", a.earningsStatement)
	t.stream("GET", "/earnings/statement.csv", readHosts, "getEarningsStatementCSV: Get the lines of an earnings "+
		"statement as CSV", a.earningsStatementCSV, earningsParams()...)
	get(t, "/payouts/balance", readHosts, "getPayoutBalance: Get what your hosts earned: in the holdback, and payable",
		a.payoutBalance)
	get(t, "/payouts", readPayouts, "listPayouts: List your payouts, newest first", a.listPayouts)
	t.stream("GET", "/payouts/year.csv", readPayouts, "getPayoutYear: Get a calendar year's earnings and payouts by "+
		"month, for the tax return", a.payoutYear, yearParams()...)
	get(t, "/payouts/{id}", readPayouts, "getPayout: Get a payout", a.getPayout)
	get(t, "/payouts/account", readPayouts, "getPayoutAccount: Get your payout account and what Stripe still requires",
		a.getPayoutAccount)
	post(t, "/payouts/account", writeBilling, 201, "setUpPayouts: Create a link to Stripe's page where you enter "+
		"your identity and bank account", a.setUpPayouts)
	get(t, "/bond", readHosts, "getBond: Get your hosts' bond: free, reserved, terms, and standby that it paid", a.getBond)
	patch(t, "/bond", writeHosts, "changeBondTerms: Change your bond's terms: the share of maturing earnings kept, "+
		"neighbours accepted, the most that a lease may cost it", a.changeBondTerms)
	get(t, "/bond/liability", readHosts, "getLiability: Get what a lease of yours would be liable for in a gang, "+
		"before it is rented", a.getLiability)
	post(t, "/bond/deposits", writeBilling, 201, "depositBond: Move paid credit from your wallet into the bond",
		a.depositBond)
	post(t, "/bond/withdrawals", writeBilling, 201, "withdrawBond: Withdraw what is not reserved from the bond",
		a.withdrawBond)
	patch(t, "/bond/hosts/{id}", writeHosts,
		"changeHostLiability: Set the most that one lease of a host may be liable for", a.changeHostLiability)
	get(t, "/bond/clusters/{id}/suspensions", readHosts, "listSuspensions: List the time of gangs with a host of yours "+
		"that was not billed, and why", a.bondSuspensions)
	post(t, "/budgets", writeBilling, 200, "setBudget: Set what your organisation, or one of its projects, may spend",
		a.setBudget)
	get(t, "/budgets", readBilling, "listBudgets: List budgets and what is left of them", a.listBudgets)
	get(t, "/budgets/{id}", readBilling, "getBudget: Get a budget", a.getBudget)
	remove(t, "/budgets/{id}", writeBilling, "removeBudget: Delete a budget; one that is set again counts from then on",
		a.removeBudget)
	get(t, "/ledger/head", public, "getLedgerHead: Get the newest batch of the chained ledger, to note and compare later",
		a.ledgerHead)
	get(t, "/billing/balance", readBilling, "getBalance: Get your wallet: available, held, and how long it lasts",
		a.balance)
	get(t, "/billing/standing", readBilling, "getStanding: Get what you may add, before verification and while "+
		"payments are disputed", a.standing)
	get(t, "/billing/statement", readBilling, "getStatement: Get what was billed between two days, by cluster, day, "+
		"project, lease or label", a.statement)
	t.stream("GET", "/billing/statement.csv", readBilling, "getStatementCSV: Get the lines of a statement as CSV",
		a.statementCSV, statementParams()...)
	get(t, "/documents", readBilling, "listDocuments: List your organisation's receipts, credit notes and self-billing "+
		"documents, newest first", a.listDocuments)
	get(t, "/documents/{number}", readBilling, "getDocument: Get a document as it was issued, and the documents that "+
		"correct it", a.getDocument)
	get(t, "/billing/credit-notes", readBilling, "listCreditNotes: List the credit notes of a calendar year, newest first",
		a.listCreditNotes)
	t.stream("GET", "/billing/credit-notes.csv", readBilling, "getCreditNotesCSV: Get the credit notes of a calendar "+
		"year as CSV", a.creditNotesCSV, documentYearParams()...)
	get(t, "/billing/credit-notes/{number}", readBilling, "getCreditNote: Get a credit note as it was issued",
		a.getCreditNote)
	get(t, "/payouts/documents", readPayouts, "listSelfBills: List the self-billing documents issued to an operator in "+
		"a calendar year, newest first", a.listSelfBills)
	t.stream("GET", "/payouts/documents.csv", readPayouts, "getSelfBillsCSV: Get the self-billing documents of a "+
		"calendar year as CSV", a.selfBillsCSV, documentYearParams()...)
	get(t, "/payouts/documents/{number}", readPayouts, "getSelfBill: Get a self-billing document as it was issued",
		a.getSelfBill)
	get(t, "/billing/invoices/{month}", readBilling, "getInvoice: Get the statement of a calendar month; tax is on the "+
		"receipts of payments", a.invoice)
	get(t, "/billing/transactions", readBilling, "listTransactions: List your organisation's ledger entries, newest first",
		a.transactions)
	get(t, "/billing/price", readBilling, "getPrice: Get what adding an amount costs with tax", a.price)
	post(t, "/billing/topups", writeBilling, 201, "createTopUp: Create a top-up", a.topUp)
	get(t, "/billing/topups", readBilling, "listTopUps: List top-ups, newest first", a.listTopUps)
	get(t, "/billing/topups/{id}", readBilling, "getTopUp: Get a top-up", a.getTopUp)
	get(t, "/billing/topups/{id}/receipt", readBilling, "getReceipt: Get the receipt of a payment as it was issued, "+
		"and what was refunded since", a.getReceipt)
	get(t, "/billing/cards", readBilling, "listCards: List your organisation's cards", a.listCards)
	post(t, "/billing/cards", writeBilling, 201, "addCard: Create a link to the page on which a card is saved",
		a.addCard)
	get(t, "/billing/card-setups/{id}", readBilling, "getCardSetup: Get whether a card was saved", a.getCardSetup)
	patch(t, "/billing/cards/{id}", writeBilling, "changeCard: Make a card the default", a.changeCard)
	remove(t, "/billing/cards/{id}", writeBilling, "removeCard: Delete a card", a.removeCard)
	get(t, "/billing/refunds", readBilling, "listRefunds: List refunds, and what can be refunded", a.listRefunds)
	post(t, "/billing/refunds", writeBilling, 201, "createRefund: Refund unused balance to the cards that paid it",
		a.giveBack)
	post(t, "/billing/promo", writeBilling, 201, "redeemCode: Redeem a promo code", a.redeem)
	get(t, "/billing/postpaid", readBilling, "getPostpaid: Get your postpaid limit and how much of it is used",
		a.postpaidTerms)
	get(t, "/billing/postpaid/invoices", readBilling, "listPostpaidInvoices: List Stripe's invoices of your postpaid "+
		"usage, newest first", a.postpaidInvoices)
	get(t, "/billing/postpaid/usage", readBilling, "listPostpaidUsage: List the postpaid usage booked in a period, and "+
		"when it ran", a.postpaidUsage)
	post(t, "/billing/postpaid/invoices/{id}/pay", writeBilling, 202,
		"payPostpaidInvoice: Charge your default card for an unpaid invoice", a.payPostpaidInvoice)
	get(t, "/billing/auto-topup", readBilling, "getAutoTopUp: Get the automatic top-up", a.getAutoTopUp)
	patch(t, "/billing/auto-topup", writeBilling, "setAutoTopUp: Set or turn off the automatic top-up", a.setAutoTopUp)

	// The platform's operators.
	get(t, "/admin/attention", platformAdmin, "getAttention: Count what needs an admin now", a.attention)
	get(t, "/admin/totals", platformAdmin,
		"getPlatformTotals: Count hosts, GPUs and clusters now, and the demand of two weeks", a.platformTotals)
	get(t, "/admin/orgs", platformAdmin, "listOrgs: List all organisations, newest first", a.listOrgs)
	get(t, "/admin/orgs/{id}", platformAdmin, "getOrg: Get an organisation: people, money, hosts, clusters, disputes",
		a.getOrg)
	get(t, "/admin/operators", platformAdmin, "listOperators: List organisations with hosts or a payout account, "+
		"newest first", a.listOperators)
	get(t, "/admin/audit-events", platformAdmin, "searchAudit: Search the audit log of all organisations, newest first",
		a.auditLog)
	get(t, "/admin/promo-redemptions", platformAdmin, "listRedemptions: List redemptions of promo codes, newest first",
		a.redemptions)
	get(t, "/admin/payout-run", platformAdmin, "getPayoutRun: Get what the next payouts would be, and what failed",
		a.payoutRun)
	post(t, "/admin/payout-run", platformAdmin, 201, "runPayouts: Pay every operator who can be paid now, with a reason",
		a.runPayouts)
	get(t, "/admin/secret", platformAdmin, "getSealState: How far secrets at rest are sealed with the present "+
		"MUSTER_SECRET", a.sealState)
	get(t, "/admin/sending", platformAdmin, "getSending: Get whether requests that move money are sent to Stripe",
		a.sending)
	put(t, "/admin/sending", platformAdmin, "setSending: Pause or resume every request that moves money at Stripe, "+
		"with a reason", a.setSending)
	get(t, "/admin/promo-codes", platformAdmin, "listPromoCodes: List promo codes", a.listPromos)
	post(t, "/admin/promo-codes", platformAdmin, 201, "createPromoCode: Create a promo code", a.createPromo)
	post(t, "/admin/promo-codes/{code}/disable", platformAdmin, 200,
		"disablePromoCode: Disable a promo code, with a reason; credit that it gave stays", a.disablePromo)
	get(t, "/admin/agents", platformAdmin, "listAgents: List the agent version of each channel, and the versions that "+
		"hosts run", a.listAgents)
	put(t, "/admin/agents/{name}", platformAdmin, "setAgentChannel: Set the agent version of a channel, and the share "+
		"of its hosts that run it", a.setChannel)
	get(t, "/admin/version-floors", platformAdmin, "listVersionFloors: List the oldest versions of hosts' programs that "+
		"may run renters' work", a.listFloors)
	put(t, "/admin/version-floors/{component}", platformAdmin, "setVersionFloor: Set the oldest version of a program's "+
		"branch", a.setFloor)
	post(t, "/admin/version-floors/{component}/remove", platformAdmin, 200,
		"removeVersionFloor: Remove the floor of a program's branch", a.removeFloor)
	get(t, "/admin/books", platformAdmin, "getBooks: Get the trial balance and its problems", a.trialBalance)
	get(t, "/admin/books/report", platformAdmin, "getBooksReport: Get the ledger of a period: opening and closing "+
		"balances, what moved, and what was sold", a.ledgerReport)
	t.stream("GET", "/admin/books/balances.csv", platformAdmin, "getBooksBalancesCSV: Get the balances of a period by "+
		"kind of account as CSV", a.ledgerCSV("balances", ledger.BalancesCSV), daysParams()...)
	t.stream("GET", "/admin/books/flows.csv", platformAdmin, "getBooksFlowsCSV: Get what moved in a period by month and "+
		"kind as CSV", a.ledgerCSV("flows", ledger.FlowsCSV), daysParams()...)
	t.stream("GET", "/admin/books/turnover.csv", platformAdmin, "getBooksTurnoverCSV: Get what was sold in a period as "+
		"CSV: turnover, cost of hosts and fees", a.ledgerCSV("turnover", ledger.TurnoverCSV), daysParams()...)
	get(t, "/admin/books/journal", platformAdmin, "listJournal: List the entries of a period in their order", a.journal)
	t.stream("GET", "/admin/books/journal.csv", platformAdmin, "getJournalCSV: Get the entries of a period as CSV, a "+
		"line for each transfer", a.journalCSV, daysParams(kindParam())...)
	get(t, "/admin/books/orgs", platformAdmin, "listOrgBooks: List what organisations had at the end of a day: deferred "+
		"revenue, receivables and payables", a.orgMoney)
	t.stream("GET", "/admin/books/orgs.csv", platformAdmin, "getOrgBooksCSV: Get what every organisation had at the end "+
		"of a day as CSV", a.orgMoneyCSV, dayParam())
	get(t, "/admin/books/proposals", platformAdmin, "listProposals: List proposed entries of the ledger, newest first",
		a.listProposals)
	post(t, "/admin/books/proposals", platformAdmin, 201, "proposeEntry: Propose an entry between accounts of the "+
		"platform, which another admin has to approve", a.proposeEntry)
	post(t, "/admin/books/proposals/{id}/approve", platformAdmin, 200, "approveEntry: Book an entry that another admin "+
		"proposed, with a reason", a.approveEntry)
	post(t, "/admin/books/proposals/{id}/refuse", platformAdmin, 200, "refuseEntry: Refuse a proposed entry, or withdraw "+
		"your own, with a reason", a.refuseEntry)
	get(t, "/admin/transactions", platformAdmin, "searchBooks: Search ledger entries by id, key or object", a.searchLedger)
	post(t, "/admin/transactions/{id}/compensate", platformAdmin, 201,
		"compensateCharge: Give a charge back, in part or whole, with a reason", a.compensate)
	get(t, "/admin/frozen-leases", platformAdmin, "listFrozenLeases: List leases whose money is frozen because their "+
		"host signed two accounts of the same time", a.frozenLeases)
	get(t, "/admin/held-credits", platformAdmin, "listHeldCredits: List credits for a host's failure that wait for an "+
		"admin, because the renter could have caused it", a.heldCredits)
	post(t, "/admin/leases/{id}/credit", platformAdmin, 200, "decideHeldCredit: Approve or refuse a credit that waits",
		a.decideCredit)
	post(t, "/admin/leases/{id}/unfreeze", platformAdmin, 200, "unfreezeLease: Unfreeze the money of a lease; the "+
		"account that was signed first stands", a.unfreeze)
	get(t, "/admin/quarantine", platformAdmin, "listQuarantine: List usage segments that were refused, newest first",
		a.quarantine)
	get(t, "/admin/payouts", platformAdmin, "listAllPayouts: List the payouts of all operators, newest first",
		a.listAllPayouts)
	post(t, "/admin/payouts", platformAdmin, 201, "payNow: Pay an operator outside the schedule, with a reason",
		a.payNow)
	post(t, "/admin/payouts/{id}/reverse", platformAdmin, 202, "reversePayout: Reverse a payout, in part or whole, "+
		"with a reason; payouts to the operator stop", a.reversePayout)
	get(t, "/admin/standings", platformAdmin, "listStandings: List organisations with open disputes or a suspension, "+
		"latest change first", a.standings)
	post(t, "/admin/orgs/{id}/forgive-disputes", platformAdmin, 200,
		"forgiveDisputes: Stop counting lost disputes towards a suspension, with a reason", a.forgiveDisputes)
	post(t, "/admin/orgs/{id}/allow-refund", platformAdmin, 200,
		"allowRefund: Allow an organisation to take back more than the limit on refunds within the next 30 days, with a "+
			"reason", a.allowRefund)
	get(t, "/admin/payout-reviews", platformAdmin, "listPayoutReviews: List linked operators and renters and the "+
		"earnings in review, newest first", a.listPayoutReviews)
	post(t, "/admin/payout-reviews/{id}/release", platformAdmin, 200,
		"releasePayoutReview: Approve earnings in review, with a reason; they mature as usual", a.approvePayoutReview)
	post(t, "/admin/payout-reviews/{id}/refuse", platformAdmin, 200,
		"refusePayoutReview: Refuse earnings in review for good, with a reason", a.refusePayoutReview)
	patch(t, "/admin/operators/{id}", platformAdmin, "changeOperator: Change the fee on an operator's new leases, or "+
		"stop or resume their payouts, with a reason", a.changeOperator)
	get(t, "/admin/documents", platformAdmin, "listAllDocuments: List documents of all organisations or of one, newest "+
		"first", a.listAllDocuments)
	get(t, "/admin/documents/{number}", platformAdmin, "getAnyDocument: Get a document of any organisation",
		a.getAnyDocument)
	get(t, "/admin/gpus/contested", platformAdmin, "listAllContestedGPUs: List GPUs that hosts of several organisations "+
		"list, in the order in which they were listed, up to 200", a.allContestedGPUs)
	post(t, "/admin/gpus/{uuid}/award", platformAdmin, 200, "awardGPU: Decide which host has a GPU, with a reason that "+
		"the operators read", a.awardGPU)
	get(t, "/admin/gangs", platformAdmin,
		"getGangs: Get strikes by host, pairs that are kept apart, and relief by cluster", a.adminGangs)
	get(t, "/admin/postpaid", platformAdmin, "listPostpaid: List postpaid organisations and how much of their limits "+
		"is used", a.listPostpaid)
	patch(t, "/admin/postpaid/{id}", platformAdmin, "changePostpaid: Set or end an organisation's postpaid limit, with "+
		"a reason", a.changePostpaid)
	get(t, "/admin/orgs/{id}/invoices", platformAdmin, "listOrgInvoices: List Stripe's invoices of an organisation's "+
		"postpaid usage, newest first", a.orgInvoices)
	post(t, "/admin/orgs/{id}/invoices/{invoice}/write-off", platformAdmin, 202,
		"writeOffInvoice: Write off an unpaid invoice, or what a lost dispute left unpaid, with a reason", a.writeOff)
	post(t, "/admin/orgs/{id}/invoices/{invoice}/bank-payments", platformAdmin, 201,
		"bookBankPayment: Book a bank transfer that pays what lost disputes took of an invoice, by its reference, with a "+
			"reason; repeating it changes nothing", a.bankPayment)
	post(t, "/admin/refunds/{id}/release", platformAdmin, 200, "releaseRefund: Approve the operators' earnings of an "+
		"invoice that was refunded at Stripe, with a reason", a.approveRefund)
	get(t, "/admin/tax", platformAdmin, "getTaxReport: Get the taxes of a period by country, rate and reason", a.taxReport)
	post(t, "/admin/tax/remittances", platformAdmin, 201, "remitTax: Book a payment to a tax office for a period that "+
		"is over, with a reason", a.remitTax)
	t.stream("GET", "/admin/tax.csv", platformAdmin, "getTaxReportCSV: Get the lines of a tax report as CSV",
		a.taxReportCSV, taxParams()...)
	get(t, "/admin/reconciliation", platformAdmin, "getReconciliation: Get Stripe's balance beside the ledger's",
		a.reconciliation)
	get(t, "/admin/dead-letters", platformAdmin, "listDeadLetters: List rows that a background job cannot process, "+
		"longest failing first, up to 500", a.deadLetters)
	get(t, "/admin/store", platformAdmin, "getStoreCheck: Get what the checks of the store of volumes have found",
		a.storeCheck)
}
