package api

import (
	"github.com/danielgtaylor/huma/v2"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/fault"
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

// inside are the routes of the API, below Base, by noun: the order of the reference.
func (a *API) inside(t *table) {
	a.clusterRoutes(t)
	a.quoteRoutes(t)
	a.offerRoutes(t)
	a.templateRoutes(t)
	a.volumeRoutes(t)
	a.sharedRoutes(t)
	a.bucketRoutes(t)
	a.sshKeyRoutes(t)
	a.billingRoutes(t)
	a.budgetRoutes(t)
	a.documentRoutes(t)
	a.hostRoutes(t)
	a.earningsRoutes(t)
	a.bondRoutes(t)
	a.accountRoutes(t)
	a.orgRoutes(t)
	a.noticeRoutes(t)
	a.tokenRoutes(t)
	a.ledgerRoutes(t)
	a.adminRoutes(t)
	a.adminLedgerRoutes(t)
	a.adminPlatformRoutes(t)
}

// clusterRoutes are the routes of clusters.
func (a *API) clusterRoutes(t *table) {
	t.noun("clusters", "Rent clusters, watch them and release them.", "clusters", "leases")
	clusters := clustersAPI{a.Clusters, a.Statements, a.Leases, a.logs, a.Shell, a.AppLink, a.Log}
	billing := billingAPI{a.Clusters, a.Leases, a.Payments, a.Statements}
	post(t, "/clusters", writeClusters, 202, "rentCluster: Rent a cluster", clusters.rent, withSpec,
		fails(fault.NoCapacity, fault.InsufficientFunds, fault.QuotaExceeded, fault.Conflict, fault.NotFound),
		cli("muster cluster create --nodes 2 --gpus 4 --image pytorch/pytorch:2.4.0 -- python train.py"))
	getEncoded[list[cluster.Cluster]](t, "/clusters", readClusters,
		"listClusters: List and search your organisation's clusters", clusters.list, cli("muster cluster list"))
	get(t, "/clusters/{id}", readClusters, "getCluster: Get a cluster, now or once it is in a given state", clusters.get,
		cli("muster cluster show CLUSTER"))
	post(t, "/clusters/{id}/actions", writeClusters, 200, "actOnCluster: Release or restart a cluster", clusters.act,
		fails(fault.Conflict, fault.InsufficientFunds))
	remove(t, "/clusters/{id}", writeClusters, "releaseCluster: Release a cluster; repeating it is no error",
		clusters.release, cli("muster cluster release CLUSTER"))
	get(t, "/clusters/{id}/events", readClusters, "listClusterEvents: List the events of a cluster", clusters.events,
		cli("muster cluster events CLUSTER"))
	stream(t, "/clusters/{id}/logs", readClusters, "streamClusterLogs: Stream the output of a cluster's ranks as text",
		clusters.stream, params(logParams()...), cli("muster cluster logs CLUSTER"))
	stream(t, "/clusters/{id}/ssh", writeClusters,
		"sshToCluster: Open SSH to a rank over a WebSocket, authenticated by the API token", clusters.ssh,
		fails(fault.Conflict), cli("muster cluster ssh CLUSTER"))
	get(t, "/clusters/{id}/ports/{port}", writeClusters,
		"getPortLink: Create a link, valid for a few minutes, to an HTTP port of a rank", clusters.portLink,
		fails(fault.Conflict), cli("muster cluster open CLUSTER 8888"))
	get(t, "/clusters/{id}/metrics", readClusters,
		"getClusterMetrics: Get utilisation, memory, power and temperature of each GPU of a cluster", clusters.metrics)
	stream(t, "/clusters/{id}/metrics/prometheus", readClusters,
		"scrapeCluster: Get a cluster's GPU metrics and cost in Prometheus format", clusters.prometheus)
	get(t, "/clusters/{id}/usage", readClusters, "getClusterUsage: Get the usage and cost of a cluster by segment",
		clusters.usage, cli("muster cluster usage CLUSTER"))
	get(t, "/clusters/{id}/proof", readClusters,
		"getClusterProof: Get everything that a cluster's bill depends on, to verify it without us", billing.clusterProof,
		cli("muster billing verify CLUSTER"))
	get(t, "/leases/{id}/proof", readLeases,
		"getLeaseProof: Get everything that one lease's bill depends on, as its renter or the operator of its host",
		billing.leaseProof)
}

// quoteRoutes are the routes of quotes.
func (a *API) quoteRoutes(t *table) {
	t.noun("quotes", "Binding prices whose GPUs are held for a short time.", "quotes")
	market := marketAPI{a.Market, a.cfg}
	post(t, "/quotes", writeClusters, 201,
		"createQuote: Create a quote: an all-in price whose GPUs are claimed for a short time", market.quote, withSpec,
		fails(fault.NoCapacity, fault.InsufficientFunds, fault.QuotaExceeded, fault.Conflict, fault.NotFound),
		cli("muster quote --nodes 2 --gpus 4 --gpu h100"))
	get(t, "/quotes/{id}", readClusters, "getQuote: Get a quote", market.getQuote, cli("muster quote show QUOTE"))
	remove(t, "/quotes/{id}", writeClusters, "returnQuote: Cancel a quote and free its GPUs", market.returnQuote,
		fails(fault.Conflict), cli("muster quote return QUOTE"))
}

// offerRoutes are the routes of offers.
func (a *API) offerRoutes(t *table) {
	t.noun("offers", "GPUs that can be rented now, and what a cluster would cost.", "offers", "estimate", "price-guide")
	market := marketAPI{a.Market, a.cfg}
	hosts := hostsAPI{a.Hosts, a.Market, a.Clusters, a.Statements, a.EnrollCommand}
	get(t, "/offers", readClusters, "searchOffers: Search the offers that can be rented now", market.searchOffers,
		cli("muster offers 'h100 region=eu-west'"))
	get(t, "/estimate", public,
		"getEstimate: Get the price that a cluster would have now, without an account; nothing is held", market.estimate,
		fails(fault.NoCapacity), cli("muster estimate --nodes 2 --gpus 4 --gpu h100"))
	get(t, "/price-guide", readHosts, "getPriceGuide: Get how other operators price a GPU model now", hosts.priceGuide)
}

// templateRoutes are the routes of templates.
func (a *API) templateRoutes(t *table) {
	t.noun("templates", "Specs with a name, to rent from.", "templates")
	templates := templatesAPI{a.Templates, a.Clusters}
	get(t, "/templates", readClusters,
		"listTemplates: List the built-in templates, and those of your organisation by name", templates.list,
		cli("muster template list"))
	post(t, "/templates", writeClusters, 201,
		"createTemplate: Save a spec, or that of a cluster, as a template of your organisation", templates.create, withSpec,
		fails(fault.Conflict, fault.QuotaExceeded, fault.NotFound))
	get(t, "/templates/{name}", readClusters, "getTemplate: Get a template", templates.get,
		cli("muster template show TEMPLATE"))
	remove(t, "/templates/{name}", writeClusters, "deleteTemplate: Delete a template of your organisation",
		templates.delete, fails(fault.Conflict), cli("muster template delete TEMPLATE"))
}

// volumeRoutes are the routes of volumes.
func (a *API) volumeRoutes(t *table) {
	t.noun("volumes", "Data that follows to any host: volumes, their snapshots and files.", "volumes")
	volumes := volumesAPI{a.Volumes, a.Log}
	get(t, "/volumes", readClusters, "listVolumes: List your organisation's volumes by name", volumes.list,
		cli("muster volume list"))
	post(t, "/volumes", writeClusters, 201, "createVolume: Create an empty volume", volumes.create,
		fails(fault.Conflict, fault.QuotaExceeded), cli("muster volume create training-data --size 100"))
	get(t, "/volumes/{id}", readClusters, "getVolume: Get a volume, with what is durable of it", volumes.get,
		cli("muster volume show VOLUME"))
	patch(t, "/volumes/{id}", writeClusters, "changeVolume: Change a volume's name, size or retention", volumes.change,
		fails(fault.Conflict), cli("muster volume set VOLUME --size 200"))
	remove(t, "/volumes/{id}", writeClusters,
		"deleteVolume: Delete a volume with all its snapshots; billing ends at once", volumes.delete, fails(fault.Conflict),
		cli("muster volume delete VOLUME"))
	get(t, "/volumes/{id}/snapshots", readClusters, "listVolumeSnapshots: List a volume's snapshots, newest first",
		volumes.listSnapshots)
	post(t, "/volumes/{id}/snapshots", writeClusters, 202,
		"snapshotVolume: Request a snapshot from the host that has the volume", volumes.snapshot, fails(fault.Conflict),
		cli("muster volume snapshot VOLUME"))
	remove(t, "/volumes/{id}/snapshots/{seq}", writeClusters,
		"deleteVolumeSnapshot: Delete a snapshot other than the last one", volumes.deleteSnapshot, fails(fault.Conflict))
	post(t, "/volumes/{id}/restore", writeClusters, 200,
		"restoreVolume: Make an earlier snapshot the volume's present state, as its next snapshot", volumes.restore,
		fails(fault.Conflict), cli("muster volume restore VOLUME 12"))
	post(t, "/volumes/{id}/clones", writeClusters, 201,
		"cloneVolume: Create a volume from a snapshot; it costs nothing until it changes", volumes.clone,
		fails(fault.Conflict, fault.QuotaExceeded), cli("muster volume clone VOLUME training-data-2"))
	get(t, "/volumes/{id}/files", readClusters, "listVolumeFiles: List a directory of a snapshot", volumes.listFiles,
		fails(fault.Conflict), cli("muster volume files VOLUME"))
	stream(t, "/volumes/{id}/content", readClusters, "getVolumeContent: Download a file of a snapshot", volumes.content,
		media("*/*", &huma.Schema{Type: huma.TypeString}), fails(fault.Conflict),
		cli("muster volume get VOLUME checkpoints/model.pt"))
	put(t, "/volumes/{id}/transfers/{transfer}", writeClusters,
		"openTransfer: Open a transfer, which moves files without a cluster; its answer has the volume's key",
		volumes.openTransfer, fails(fault.Conflict), cli("muster volume cp ./data VOLUME:/data"))
	patch(t, "/volumes/{id}/transfers/{transfer}", writeClusters,
		"reportTransfer: Note how far a transfer is, and keep it open", volumes.reportTransfer, fails(fault.Conflict))
	remove(t, "/volumes/{id}/transfers/{transfer}", writeClusters,
		"closeTransfer: End a transfer; what is not committed is removed", volumes.closeTransfer)
	post(t, "/volumes/{id}/transfers/{transfer}/numbers", writeClusters, 201,
		"reservePacks: Reserve numbers for the packs of an upload", volumes.reservePacks, fails(fault.Conflict))
	put(t, "/volumes/{id}/transfers/{transfer}/packs/{n}", writeClusters,
		"storePack: Get the request that stores a pack", volumes.storePack, fails(fault.Conflict, fault.QuotaExceeded))
	get(t, "/volumes/{id}/transfers/{transfer}/packs/{n}", writeClusters, "readPack: Get the request that reads a pack",
		volumes.readPack, fails(fault.Conflict))
	put(t, "/volumes/{id}/transfers/{transfer}/snapshot", writeClusters,
		"commitUpload: Make what an upload has sent the volume's next snapshot", volumes.commitUpload,
		fails(fault.Conflict, fault.QuotaExceeded))
}

// sharedRoutes are the routes of shared.
func (a *API) sharedRoutes(t *table) {
	t.noun("shared", "Shared file systems of operators, with a folder for each organisation.", "shared")
	shared := sharedAPI{a.Shared}
	get(t, "/shared", readClusters,
		"listShared: List the shared file systems that hosts have, those that your organisation declares, and those where "+
			"it has data", shared.list, cli("muster shared list"))
	post(t, "/shared", writeHosts, 201, "declareShared: Declare a shared file system of your hosts", shared.declare,
		fails(fault.Conflict, fault.QuotaExceeded), cli("muster shared declare lab-nfs --kind nfs --quota 500"))
	remove(t, "/shared/{id}", writeHosts,
		"withdrawShared: End the declaration of a shared file system; what is on it stays there", shared.withdraw,
		cli("muster shared withdraw lab-nfs"))
	remove(t, "/shared/{id}/data", writeClusters,
		"eraseSharedData: Delete your organisation's data on a shared file system", shared.erase,
		cli("muster shared erase lab-nfs"))
}

// bucketRoutes are the routes of buckets.
func (a *API) bucketRoutes(t *table) {
	t.noun("buckets", "Your own S3-compatible stores, with their credentials.", "buckets")
	buckets := bucketsAPI{a.Buckets}
	get(t, "/buckets", readClusters, "listBuckets: List your organisation's buckets by name", buckets.list,
		cli("muster bucket list"))
	post(t, "/buckets", writeClusters, 201,
		"createBucket: Add a bucket of your own store, after a check of its credentials", buckets.create,
		fails(fault.Conflict, fault.QuotaExceeded),
		cli("muster bucket create results --endpoint https://s3.amazonaws.com --bucket acme-results"))
	get(t, "/buckets/{id}", readClusters, "getBucket: Get a bucket, without its secret", buckets.get,
		cli("muster bucket show BUCKET"))
	patch(t, "/buckets/{id}", writeClusters,
		"rotateBucket: Replace a bucket's credentials, once its store accepts the new ones", buckets.rotate,
		cli("muster bucket rotate BUCKET"))
	remove(t, "/buckets/{id}", writeClusters,
		"deleteBucket: Delete a bucket and its credentials; what the store has stays there", buckets.delete,
		cli("muster bucket delete BUCKET"))
	post(t, "/buckets/{id}/check", writeClusters, 200,
		"checkBucket: Ask a bucket's store whether the credentials still work", buckets.check, fails(fault.Conflict),
		cli("muster bucket check BUCKET"))
}

// sshKeyRoutes are the routes of ssh-keys.
func (a *API) sshKeyRoutes(t *table) {
	t.noun("ssh-keys", "Keys that may log in to clusters, and the address of the SSH gateway.", "ssh-keys",
		"ssh-gateway")
	tokens := tokensAPI{a.Accounts, a.cfg}
	get(t, "/ssh-keys", readClusters, "listSSHKeys: List your organisation's SSH keys", tokens.listSSHKeys,
		cli("muster ssh-key list"))
	post(t, "/ssh-keys", writeClusters, 201, "addSSHKey: Add a public SSH key", tokens.addSSHKey,
		fails(fault.Conflict, fault.QuotaExceeded), cli("muster ssh-key add ~/.ssh/id_ed25519.pub"))
	remove(t, "/ssh-keys/{id}", writeClusters, "deleteSSHKey: Delete an SSH key", tokens.deleteSSHKey,
		cli("muster ssh-key delete KEY"))
	get(t, "/ssh-gateway", readClusters, "getSSHGateway: Get the address and host keys of the SSH gateway",
		tokens.sshGateway, fails(fault.NotFound))
}

// billingRoutes are the routes of billing.
func (a *API) billingRoutes(t *table) {
	t.noun("billing", "The wallet: balance, top-ups, cards, refunds, statements and invoices.", "billing")
	billing := billingAPI{a.Clusters, a.Leases, a.Payments, a.Statements}
	admin := adminAPI{a.Statements, a.Payments, a.Payouts, a.Market}
	documents := documentsAPI{a.Payments, a.Payouts, a.Statements}
	postpaid := postpaidAPI{a.Postpaid}
	get(t, "/billing/balance", readBilling, "getBalance: Get your wallet: available, held, and how long it lasts",
		billing.balance, cli("muster billing balance"))
	get(t, "/billing/standing", readBilling,
		"getStanding: Get what you may add, before verification and while payments are disputed", admin.standing,
		cli("muster billing standing"))
	get(t, "/billing/statement", readBilling,
		"getStatement: Get what was billed between two days, by cluster, day, project, lease or label", billing.statement,
		cli("muster statement"))
	stream(t, "/billing/statement.csv", readBilling, "getStatementCSV: Get the lines of a statement as CSV",
		billing.statementCSV)
	get(t, "/billing/credit-notes", readBilling,
		"listCreditNotes: List the credit notes of a calendar year, newest first", documents.listCreditNotes)
	stream(t, "/billing/credit-notes.csv", readBilling,
		"getCreditNotesCSV: Get the credit notes of a calendar year as CSV", documents.creditNotesCSV)
	get(t, "/billing/credit-notes/{number}", readBilling, "getCreditNote: Get a credit note as it was issued",
		documents.getCreditNote)
	get(t, "/billing/invoices/{month}", readBilling,
		"getInvoice: Get the statement of a calendar month; tax is on the receipts of payments", documents.invoice)
	get(t, "/billing/transactions", readBilling,
		"listTransactions: List your organisation's ledger entries, newest first", billing.transactions,
		cli("muster billing transactions"))
	get(t, "/billing/price", readBilling, "getPrice: Get what adding an amount costs with tax", billing.price)
	post(t, "/billing/topups", writeBilling, 201, "createTopUp: Create a top-up", billing.topUp,
		fails(fault.Conflict, fault.NotFound, fault.QuotaExceeded), cli("muster billing topup 50"))
	get(t, "/billing/topups", readBilling, "listTopUps: List top-ups, newest first", billing.listTopUps,
		cli("muster billing topups"))
	get(t, "/billing/topups/{id}", readBilling, "getTopUp: Get a top-up", billing.getTopUp)
	get(t, "/billing/topups/{id}/receipt", readBilling,
		"getReceipt: Get the receipt of a payment as it was issued, and what was refunded since", billing.getReceipt,
		fails(fault.Conflict))
	get(t, "/billing/cards", readBilling, "listCards: List your organisation's cards", billing.listCards,
		cli("muster billing cards list"))
	post(t, "/billing/cards", writeBilling, 201, "addCard: Create a link to the page on which a card is saved",
		billing.addCard, fails(fault.Conflict))
	get(t, "/billing/card-setups/{id}", readBilling, "getCardSetup: Get whether a card was saved", billing.getCardSetup)
	patch(t, "/billing/cards/{id}", writeBilling, "changeCard: Make a card the default", billing.changeCard,
		fails(fault.Conflict))
	remove(t, "/billing/cards/{id}", writeBilling, "removeCard: Delete a card", billing.removeCard,
		fails(fault.Conflict))
	get(t, "/billing/refunds", readBilling, "listRefunds: List refunds, and what can be refunded", billing.listRefunds)
	post(t, "/billing/refunds", writeBilling, 201, "createRefund: Refund unused balance to the cards that paid it",
		billing.giveBack, fails(fault.Conflict, fault.QuotaExceeded, fault.InsufficientFunds),
		cli("muster billing refund 10"))
	post(t, "/billing/promo", writeBilling, 201, "redeemCode: Redeem a promo code", billing.redeem,
		fails(fault.NotFound, fault.Conflict, fault.QuotaExceeded), cli("muster billing redeem CODE"))
	get(t, "/billing/postpaid", readBilling, "getPostpaid: Get your postpaid limit and how much of it is used",
		postpaid.terms)
	get(t, "/billing/postpaid/invoices", readBilling,
		"listPostpaidInvoices: List Stripe's invoices of your postpaid usage, newest first", postpaid.invoices)
	get(t, "/billing/postpaid/usage", readBilling,
		"listPostpaidUsage: List the postpaid usage booked in a period, and when it ran", postpaid.usage,
		fails(fault.NotFound))
	post(t, "/billing/postpaid/invoices/{id}/pay", writeBilling, 202,
		"payPostpaidInvoice: Charge your default card for an unpaid invoice", postpaid.pay, fails(fault.Conflict))
	get(t, "/billing/auto-topup", readBilling, "getAutoTopUp: Get the automatic top-up", billing.getAutoTopUp)
	patch(t, "/billing/auto-topup", writeBilling, "setAutoTopUp: Set or turn off the automatic top-up",
		billing.setAutoTopUp, fails(fault.Conflict, fault.QuotaExceeded))
}

// budgetRoutes are the routes of budgets.
func (a *API) budgetRoutes(t *table) {
	t.noun("budgets", "Limits on what an organisation or a project may spend.", "budgets")
	budgets := budgetsAPI{a.Budgets}
	post(t, "/budgets", writeBilling, 200, "setBudget: Set what your organisation, or one of its projects, may spend",
		budgets.set)
	get(t, "/budgets", readBilling, "listBudgets: List budgets and what is left of them", budgets.list,
		cli("muster budget list"))
	get(t, "/budgets/{id}", readBilling, "getBudget: Get a budget", budgets.get)
	remove(t, "/budgets/{id}", writeBilling, "removeBudget: Delete a budget; one that is set again counts from then on",
		budgets.remove)
}

// documentRoutes are the routes of documents.
func (a *API) documentRoutes(t *table) {
	t.noun("documents", "Receipts, credit notes and self-billing documents.", "documents")
	documents := documentsAPI{a.Payments, a.Payouts, a.Statements}
	get(t, "/documents", readBilling,
		"listDocuments: List your organisation's receipts, credit notes and self-billing documents, newest first",
		documents.list, cli("muster document list"))
	get(t, "/documents/{number}", readBilling,
		"getDocument: Get a document as it was issued, and the documents that correct it", documents.get,
		cli("muster document show NUMBER"))
}

// hostRoutes are the routes of hosts.
func (a *API) hostRoutes(t *table) {
	t.noun("hosts", "Enrol hosts, set their prices and terms, and take them out of the market.", "hosts",
		"host-enrollments", "gpus")
	hosts := hostsAPI{a.Hosts, a.Market, a.Clusters, a.Statements, a.EnrollCommand}
	post(t, "/host-enrollments", writeHosts, 201, "createEnrollment: Create a token with which one host enrols",
		hosts.enroll, withSecret, fails(fault.Conflict, fault.QuotaExceeded), cli("muster host enroll --region eu-west"))
	get(t, "/hosts", readHosts, "listHosts: List your organisation's hosts", hosts.list, cli("muster host list"))
	get(t, "/gpus/contested", readHosts,
		"listContestedGPUs: List GPUs of your organisation's hosts that hosts of other organisations list, too, up to 200",
		hosts.contested, cli("muster host contested"))
	get(t, "/hosts/{id}", readHosts, "getHost: Get a host", hosts.get, cli("muster host show HOST"))
	patch(t, "/hosts/{id}", writeHosts, "changeHost: Change a host's name, price, terms or data cap", hosts.change,
		fails(fault.Conflict), cli("muster host set HOST --price 2.50"))
	post(t, "/hosts/{id}/actions", writeHosts, 200,
		"actOnHost: Drain, reclaim, resume or retire a host, or requalify one of its GPUs", hosts.act,
		fails(fault.Conflict))
	get(t, "/hosts/{id}/reclaim", readHosts, "forecastReclaim: Get what reclaiming a host now would cost",
		hosts.reclaimForecast)
	get(t, "/hosts/{id}/metrics", readHosts, "getHostMetrics: Get what a host's GPUs do, and how fast they run",
		hosts.metrics, cli("muster host metrics HOST"))
	get(t, "/hosts/{id}/prices", readHosts,
		"listHostPrices: List the last hundred price changes of a host, newest first", hosts.prices)
	get(t, "/hosts/{id}/traffic", readHosts,
		"listHostTraffic: List the traffic of the last hundred leases on a host's own line, latest report first; kept for "+
			"half a year", hosts.traffic)
	get(t, "/hosts/{id}/earnings", readHosts, "getHostEarnings: Get a host's earnings by lease and day", hosts.earnings,
		cli("muster host earnings HOST"))
}

// earningsRoutes are the routes of earnings.
func (a *API) earningsRoutes(t *table) {
	t.noun("earnings", "What hosts earned, and payouts to their operator.", "earnings", "payouts")
	payouts := payoutsAPI{a.Payouts, a.Statements, a.Market, a.cfg}
	documents := documentsAPI{a.Payments, a.Payouts, a.Statements}
	get(t, "/earnings/statement", readHosts,
		"getEarningsStatement: Get what your hosts earned between two days, by host, day or lease",
		payouts.earningsStatement, fails(fault.NotFound))
	stream(t, "/earnings/statement.csv", readHosts,
		"getEarningsStatementCSV: Get the lines of an earnings statement as CSV", payouts.earningsStatementCSV,
		fails(fault.NotFound))
	get(t, "/payouts/balance", readHosts, "getPayoutBalance: Get what your hosts earned: in the holdback, and payable",
		payouts.balance)
	get(t, "/payouts", readPayouts, "listPayouts: List your payouts, newest first", payouts.list,
		cli("muster payout list"))
	stream(t, "/payouts/year.csv", readPayouts,
		"getPayoutYear: Get a calendar year's earnings and payouts by month, for the tax return", payouts.year)
	get(t, "/payouts/{id}", readPayouts, "getPayout: Get a payout", payouts.get)
	get(t, "/payouts/account", readPayouts, "getPayoutAccount: Get your payout account and what Stripe still requires",
		payouts.account)
	post(t, "/payouts/account", writeBilling, 201,
		"setUpPayouts: Create a link to Stripe's page where you enter your identity and bank account", payouts.setUp,
		fails(fault.Conflict))
	get(t, "/payouts/documents", readPayouts,
		"listSelfBills: List the self-billing documents issued to an operator in a calendar year, newest first",
		documents.listSelfBills)
	stream(t, "/payouts/documents.csv", readPayouts,
		"getSelfBillsCSV: Get the self-billing documents of a calendar year as CSV", documents.selfBillsCSV)
	get(t, "/payouts/documents/{number}", readPayouts, "getSelfBill: Get a self-billing document as it was issued",
		documents.getSelfBill)
}

// bondRoutes are the routes of bond.
func (a *API) bondRoutes(t *table) {
	t.noun("bond", "Money of operators that pays others when their own host fails.", "bond")
	bond := bondAPI{a.Bonds}
	get(t, "/bond", readHosts, "getBond: Get your hosts' bond: free, reserved, terms, and standby that it paid",
		bond.get, cli("muster host bond show"))
	patch(t, "/bond", writeHosts,
		"changeBondTerms: Change your bond's terms: the share of maturing earnings kept, neighbours accepted, the most "+
			"that a lease may cost it", bond.changeTerms, fails(fault.Conflict))
	get(t, "/bond/liability", readHosts,
		"getLiability: Get what a lease of yours would be liable for in a gang, before it is rented", bond.liability)
	post(t, "/bond/deposits", writeBilling, 201, "depositBond: Move paid credit from your wallet into the bond",
		bond.deposit, fails(fault.InsufficientFunds, fault.Conflict))
	post(t, "/bond/withdrawals", writeBilling, 201, "withdrawBond: Withdraw what is not reserved from the bond",
		bond.withdraw, fails(fault.InsufficientFunds, fault.Conflict))
	patch(t, "/bond/hosts/{id}", writeHosts,
		"changeHostLiability: Set the most that one lease of a host may be liable for", bond.changeHostLiability)
	get(t, "/bond/clusters/{id}/suspensions", readHosts,
		"listSuspensions: List the time of gangs with a host of yours that was not billed, and why", bond.suspensions)
}

// accountRoutes are the routes of account.
func (a *API) accountRoutes(t *table) {
	t.noun("account", "Sign up, and manage your own account and sessions.", "signup", "device-logins", "me")
	own := accountAPI{a.Accounts, a.Erasure, a.cfg}
	org := orgAPI{a.Accounts}
	post(t, "/signup", public, 201, "signUp: Create an account", own.signUp, withSecret,
		fails(fault.Conflict, fault.Forbidden))
	post(t, "/device-logins", public, 201,
		"beginDeviceLogin: Begin a login of a program whose user grants it a token in a browser", own.beginDeviceLogin,
		withSecret)
	post(t, "/device-logins/token", public, 200, "pollDeviceLogin: Get whether a login was granted, and its token, once",
		own.pollDeviceLogin, withSecret)
	get(t, "/me", signedIn, "getMe: Get the caller: user, organisation, scopes", own.me, cli("muster whoami"))
	post(t, "/me/email-verification", signedIn, 202,
		"sendVerification: Send the link that verifies your e-mail address again", own.sendVerification,
		fails(fault.Conflict))
	stream(t, "/me/export", readOrg, "exportMe: Export your personal data as JSON, without secrets", own.exportMe,
		media("application/json", &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}),
		cli("muster account export"))
	get(t, "/me/deletion", signedIn, "getDeletion: List what keeps your account from being deleted",
		own.deletionStanding)
	put(t, "/me/deletion", signedIn,
		"deleteMe: Delete your account and personal data; receipts and other documents are kept for as long as the law "+
			"requires", own.deleteMe, fails(fault.Conflict), cli("muster account delete"))
	put(t, "/me/password", signedIn, "changePassword: Change your password; your other sessions end", own.changePassword,
		cli("muster account password"))
	get(t, "/me/sessions", signedIn, "listSessions: List your sessions in the dashboard, last used first",
		own.listSessions, cli("muster account sessions list"))
	remove(t, "/me/sessions/{id}", signedIn, "endSession: End one of your sessions", own.endSession,
		cli("muster account sessions end SESSION"))
	get(t, "/me/orgs", signedIn, "listMyOrgs: List the organisations that you are a member of, and your role in each",
		org.listMyOrgs, cli("muster org list"))
	get(t, "/me/invitations", signedIn, "listMyInvitations: List open invitations to your verified e-mail address",
		org.listMyInvitations)
	post(t, "/me/invitations/{id}/accept", signedIn, 200,
		"acceptInvitation: Accept an invitation: you become a member of the organisation", org.acceptInvitation,
		fails(fault.Conflict), cli("muster org join INVITATION"))
	remove(t, "/me/invitations/{id}", signedIn, "declineInvitation: Decline an invitation", org.declineInvitation)
	remove(t, "/me/membership", signedIn, "leaveOrg: Leave the organisation of this token; the token ends, too",
		org.leaveOrg, fails(fault.Conflict), cli("muster org leave"))
}

// orgRoutes are the routes of organisation.
func (a *API) orgRoutes(t *table) {
	t.noun("organisation", "Members, invitations, legal details and the audit log of your organisation.", "org",
		"members", "invitations", "audit-events")
	org := orgAPI{a.Accounts}
	get(t, "/org/legal", readBilling,
		"getLegal: Get your organisation's legal details, as receipts and statements name it", org.getLegal,
		cli("muster org legal"))
	put(t, "/org/legal", writeBilling, "setLegal: Set your organisation's legal details: name, address, country, VAT id",
		org.setLegal)
	remove(t, "/org/legal", writeBilling, "eraseLegal: Delete your organisation's legal details", org.eraseLegal)
	get(t, "/org/zone", readBilling, "getZone: Get your organisation's time zone", org.getZone)
	put(t, "/org/zone", writeBilling,
		"setZone: Set the time zone in which your organisation's days, months and years begin", org.setZone,
		cli("muster org zone Europe/Berlin"))
	get(t, "/members", readMembers, "listMembers: List the members of your organisation and their roles",
		org.listMembers, cli("muster org members list"))
	patch(t, "/members/{id}", writeMembers,
		"changeMember: Change a member's role; rights that the new role lacks end at once", org.changeMember,
		fails(fault.Conflict))
	remove(t, "/members/{id}", writeMembers,
		"removeMember: Remove a member; their tokens, SSH keys and sessions of the organisation end at once",
		org.removeMember, fails(fault.Conflict))
	get(t, "/invitations", writeMembers, "listInvitations: List your organisation's open invitations, newest first",
		org.listInvitations)
	post(t, "/invitations", writeMembers, 201,
		"createInvitation: Invite a person by e-mail to become a member of your organisation", org.createInvitation,
		fails(fault.Conflict, fault.QuotaExceeded), cli("muster org members invite ada@example.com --role member"))
	remove(t, "/invitations/{id}", writeMembers, "withdrawInvitation: Withdraw an open invitation",
		org.withdrawInvitation)
	get(t, "/audit-events", readOrg, "listAuditEvents: List what members of your organisation did, newest first",
		org.auditLog, cli("muster org audit"))
}

// noticeRoutes are the routes of notices.
func (a *API) noticeRoutes(t *table) {
	t.noun("notices", "Messages to your organisation, and webhooks that receive them.", "notices", "webhooks")
	notices := noticesAPI{a.Notices, a.Webhooks}
	get(t, "/notices", readOrg, "listNotices: List your organisation's notices, newest first", notices.listNotices,
		cli("muster notice list --unread"))
	post(t, "/notices/read", readOrg, 200, "readNotices: Mark a notice and all older ones as read", notices.readNotices,
		cli("muster notice read NOTICE --older"))
	post(t, "/notices/{id}/read", readOrg, 200, "readNotice: Mark a notice as read", notices.readNotice,
		cli("muster notice read NOTICE"))
	get(t, "/webhooks", readMembers, "listWebhooks: List your organisation's webhooks, newest first",
		notices.listWebhooks, cli("muster webhook list"))
	post(t, "/webhooks", writeMembers, 201, "createWebhook: Create a webhook: an address that receives every new notice",
		notices.createWebhook, withSecret, fails(fault.QuotaExceeded),
		cli("muster webhook create https://example.com/muster"))
	remove(t, "/webhooks/{id}", writeMembers, "deleteWebhook: Delete a webhook and what it has not received",
		notices.deleteWebhook, cli("muster webhook delete WEBHOOK"))
	post(t, "/webhooks/{id}/enable", writeMembers, 200, "enableWebhook: Send notices to a disabled webhook again",
		notices.enableWebhook, cli("muster webhook enable WEBHOOK"))
	get(t, "/webhooks/{id}/deliveries", readMembers,
		"listDeliveries: List what a webhook received and what it has not, newest first", notices.listDeliveries,
		cli("muster webhook deliveries WEBHOOK"))
	post(t, "/webhooks/{id}/deliveries/{notice}/retry", writeMembers, 200,
		"retryDelivery: Send a notice to a webhook again", notices.retryDelivery, fails(fault.Conflict),
		cli("muster webhook retry WEBHOOK NOTICE"))
}

// tokenRoutes are the routes of tokens.
func (a *API) tokenRoutes(t *table) {
	t.noun("tokens", "API tokens and their scopes.", "tokens")
	tokens := tokensAPI{a.Accounts, a.cfg}
	get(t, "/tokens", signedIn, "listTokens: List your organisation's API tokens", tokens.listTokens,
		cli("muster token list"))
	post(t, "/tokens", signedIn, 201, "createToken: Create an API token within your own scopes", tokens.createToken,
		withSecret, fails(fault.QuotaExceeded), cli("muster token create ci --scope clusters"))
	remove(t, "/tokens/{id}", signedIn, "revokeToken: Revoke an API token; it ends at once", tokens.revokeToken,
		cli("muster token revoke TOKEN"))
}

// ledgerRoutes are the routes of ledger.
func (a *API) ledgerRoutes(t *table) {
	t.noun("ledger", "The chained ledger, which anybody can compare.", "ledger")
	entries := ledgerAPI{a.Statements, a.Payments, a.Leases}
	get(t, "/ledger/head", public,
		"getLedgerHead: Get the newest batch of the chained ledger, to note and compare later", entries.ledgerHead,
		fails(fault.NotFound))
}

// adminRoutes are the routes of the platform's staff about organisations, their payouts and documents.
func (a *API) adminRoutes(t *table) {
	t.noun("admin", "The console of the platform's staff.", "admin")
	admin := adminAPI{a.Statements, a.Payments, a.Payouts, a.Market}
	payouts := payoutsAPI{a.Payouts, a.Statements, a.Market, a.cfg}
	documents := documentsAPI{a.Payments, a.Payouts, a.Statements}
	postpaid := postpaidAPI{a.Postpaid}
	get(t, "/admin/orgs", platformAdmin, "listOrgs: List all organisations, newest first", admin.listOrgs)
	get(t, "/admin/orgs/{id}", platformAdmin, "getOrg: Get an organisation: people, money, hosts, clusters, disputes",
		admin.getOrg)
	get(t, "/admin/operators", platformAdmin,
		"listOperators: List organisations with hosts or a payout account, newest first", admin.listOperators)
	get(t, "/admin/audit-events", platformAdmin, "searchAudit: Search the audit log of all organisations, newest first",
		admin.auditLog)
	get(t, "/admin/promo-redemptions", platformAdmin, "listRedemptions: List redemptions of promo codes, newest first",
		admin.redemptions)
	get(t, "/admin/payout-run", platformAdmin, "getPayoutRun: Get what the next payouts would be, and what failed",
		payouts.upcoming)
	post(t, "/admin/payout-run", platformAdmin, 201, "runPayouts: Pay every operator who can be paid now, with a reason",
		payouts.payAll, fails(fault.Conflict))
	get(t, "/admin/promo-codes", platformAdmin, "listPromoCodes: List promo codes", admin.listPromos)
	post(t, "/admin/promo-codes", platformAdmin, 201, "createPromoCode: Create a promo code", admin.createPromo,
		fails(fault.Conflict))
	post(t, "/admin/promo-codes/{code}/disable", platformAdmin, 200,
		"disablePromoCode: Disable a promo code, with a reason; credit that it gave stays", admin.disablePromo,
		fails(fault.Conflict))
	get(t, "/admin/payouts", platformAdmin, "listAllPayouts: List the payouts of all operators, newest first",
		payouts.listAll)
	post(t, "/admin/payouts", platformAdmin, 201, "payNow: Pay an operator outside the schedule, with a reason",
		payouts.payNow, fails(fault.Conflict, fault.NotFound))
	post(t, "/admin/payouts/{id}/reverse", platformAdmin, 202,
		"reversePayout: Reverse a payout, in part or whole, with a reason; payouts to the operator stop", payouts.reverse,
		fails(fault.Conflict))
	get(t, "/admin/standings", platformAdmin,
		"listStandings: List organisations with open disputes or a suspension, latest change first", admin.standings)
	post(t, "/admin/orgs/{id}/forgive-disputes", platformAdmin, 200,
		"forgiveDisputes: Stop counting lost disputes towards a suspension, with a reason", admin.forgiveDisputes,
		fails(fault.Conflict))
	post(t, "/admin/orgs/{id}/allow-refund", platformAdmin, 200,
		"allowRefund: Allow an organisation to take back more than the limit on refunds within the next 30 days, with a "+
			"reason", admin.allowRefund, fails(fault.Conflict))
	get(t, "/admin/payout-reviews", platformAdmin,
		"listPayoutReviews: List linked operators and renters and the earnings in review, newest first",
		payouts.listReviews)
	post(t, "/admin/payout-reviews/{id}/release", platformAdmin, 200,
		"releasePayoutReview: Approve earnings in review, with a reason; they mature as usual", payouts.approveReview,
		fails(fault.Conflict))
	post(t, "/admin/payout-reviews/{id}/refuse", platformAdmin, 200,
		"refusePayoutReview: Refuse earnings in review for good, with a reason", payouts.refuseReview,
		fails(fault.Conflict))
	patch(t, "/admin/operators/{id}", platformAdmin,
		"changeOperator: Change the fee on an operator's new leases, or stop or resume their payouts, with a reason",
		payouts.changeOperator, fails(fault.Conflict))
	get(t, "/admin/documents", platformAdmin,
		"listAllDocuments: List documents of all organisations or of one, newest first", documents.listAll)
	get(t, "/admin/documents/{number}", platformAdmin, "getAnyDocument: Get a document of any organisation",
		documents.getAny)
	get(t, "/admin/postpaid", platformAdmin,
		"listPostpaid: List postpaid organisations and how much of their limits is used", postpaid.list)
	patch(t, "/admin/postpaid/{id}", platformAdmin,
		"changePostpaid: Set or end an organisation's postpaid limit, with a reason", postpaid.change,
		fails(fault.Conflict))
	get(t, "/admin/orgs/{id}/invoices", platformAdmin,
		"listOrgInvoices: List Stripe's invoices of an organisation's postpaid usage, newest first", postpaid.orgInvoices)
	post(t, "/admin/orgs/{id}/invoices/{invoice}/write-off", platformAdmin, 202,
		"writeOffInvoice: Write off an unpaid invoice, or what a lost dispute left unpaid, with a reason",
		postpaid.writeOff, fails(fault.Conflict))
	post(t, "/admin/orgs/{id}/invoices/{invoice}/bank-payments", platformAdmin, 201,
		"bookBankPayment: Book a bank transfer that pays what lost disputes took of an invoice, by its reference, with a "+
			"reason; repeating it changes nothing", postpaid.bankPayment, fails(fault.Conflict))
	post(t, "/admin/refunds/{id}/release", platformAdmin, 200,
		"releaseRefund: Approve the operators' earnings of an invoice that was refunded at Stripe, with a reason",
		admin.approveRefund, fails(fault.Conflict))
}

// adminLedgerRoutes are the routes of the platform's staff about the ledger.
func (a *API) adminLedgerRoutes(t *table) {
	entries := ledgerAPI{a.Statements, a.Payments, a.Leases}
	platform := platformAPI{a.Clusters, a.Hosts, a.Notices, a.Outbox, a.Reconciler, a.Volumes}
	get(t, "/admin/books", platformAdmin, "getBooks: Get the trial balance and its problems", entries.trialBalance)
	get(t, "/admin/books/report", platformAdmin,
		"getBooksReport: Get the ledger of a period: opening and closing balances, what moved, and what was sold",
		entries.ledgerReport)
	stream(t, "/admin/books/balances.csv", platformAdmin,
		"getBooksBalancesCSV: Get the balances of a period by kind of account as CSV",
		entries.ledgerCSV("balances", ledger.BalancesCSV))
	stream(t, "/admin/books/flows.csv", platformAdmin,
		"getBooksFlowsCSV: Get what moved in a period by month and kind as CSV",
		entries.ledgerCSV("flows", ledger.FlowsCSV))
	stream(t, "/admin/books/turnover.csv", platformAdmin,
		"getBooksTurnoverCSV: Get what was sold in a period as CSV: turnover, cost of hosts and fees",
		entries.ledgerCSV("turnover", ledger.TurnoverCSV))
	get(t, "/admin/books/journal", platformAdmin, "listJournal: List the entries of a period in their order",
		entries.journal)
	stream(t, "/admin/books/journal.csv", platformAdmin,
		"getJournalCSV: Get the entries of a period as CSV, a line for each transfer", entries.journalCSV)
	get(t, "/admin/books/orgs", platformAdmin,
		"listOrgBooks: List what organisations had at the end of a day: deferred revenue, receivables and payables",
		entries.orgMoney)
	stream(t, "/admin/books/orgs.csv", platformAdmin,
		"getOrgBooksCSV: Get what every organisation had at the end of a day as CSV", entries.orgMoneyCSV)
	get(t, "/admin/books/proposals", platformAdmin, "listProposals: List proposed entries of the ledger, newest first",
		entries.listProposals)
	post(t, "/admin/books/proposals", platformAdmin, 201,
		"proposeEntry: Propose an entry between accounts of the platform, which another admin has to approve",
		entries.proposeEntry)
	post(t, "/admin/books/proposals/{id}/approve", platformAdmin, 200,
		"approveEntry: Book an entry that another admin proposed, with a reason", entries.approveEntry,
		fails(fault.Conflict))
	post(t, "/admin/books/proposals/{id}/refuse", platformAdmin, 200,
		"refuseEntry: Refuse a proposed entry, or withdraw your own, with a reason", entries.refuseEntry,
		fails(fault.Conflict))
	get(t, "/admin/transactions", platformAdmin, "searchBooks: Search ledger entries by id, key or object",
		entries.searchLedger)
	post(t, "/admin/transactions/{id}/compensate", platformAdmin, 201,
		"compensateCharge: Give a charge back, in part or whole, with a reason", entries.compensate, fails(fault.Conflict))
	get(t, "/admin/frozen-leases", platformAdmin,
		"listFrozenLeases: List leases whose money is frozen because their host signed two accounts of the same time",
		entries.frozenLeases)
	get(t, "/admin/held-credits", platformAdmin,
		"listHeldCredits: List credits for a host's failure that wait for an admin, because the renter could have caused it",
		entries.heldCredits)
	post(t, "/admin/leases/{id}/credit", platformAdmin, 200, "decideHeldCredit: Approve or refuse a credit that waits",
		entries.decideCredit, fails(fault.Conflict))
	post(t, "/admin/leases/{id}/unfreeze", platformAdmin, 200,
		"unfreezeLease: Unfreeze the money of a lease; the account that was signed first stands", entries.unfreeze,
		fails(fault.Conflict))
	get(t, "/admin/quarantine", platformAdmin, "listQuarantine: List usage segments that were refused, newest first",
		entries.quarantine)
	get(t, "/admin/tax", platformAdmin, "getTaxReport: Get the taxes of a period by country, rate and reason",
		entries.taxReport)
	post(t, "/admin/tax/remittances", platformAdmin, 201,
		"remitTax: Book a payment to a tax office for a period that is over, with a reason", entries.remitTax,
		fails(fault.Conflict))
	stream(t, "/admin/tax.csv", platformAdmin, "getTaxReportCSV: Get the lines of a tax report as CSV",
		entries.taxReportCSV)
	get(t, "/admin/reconciliation", platformAdmin, "getReconciliation: Compare Stripe's balance with the ledger's",
		platform.reconciliation)
}

// adminPlatformRoutes are the routes of the platform's staff about the platform itself.
func (a *API) adminPlatformRoutes(t *table) {
	admin := adminAPI{a.Statements, a.Payments, a.Payouts, a.Market}
	platform := platformAPI{a.Clusters, a.Hosts, a.Notices, a.Outbox, a.Reconciler, a.Volumes}
	hosts := hostsAPI{a.Hosts, a.Market, a.Clusters, a.Statements, a.EnrollCommand}
	get(t, "/admin/attention", platformAdmin, "getAttention: Count what needs an admin now", admin.attention)
	get(t, "/admin/totals", platformAdmin,
		"getPlatformTotals: Count hosts, GPUs and clusters now, and the demand of two weeks", admin.platformTotals)
	get(t, "/admin/secret", platformAdmin,
		"getSealState: Get how far secrets at rest are sealed with the present MUSTER_SECRET", platform.sealState)
	get(t, "/admin/sending", platformAdmin, "getSending: Get whether requests that move money are sent to Stripe",
		platform.sending)
	put(t, "/admin/sending", platformAdmin,
		"setSending: Pause or resume every request that moves money at Stripe, with a reason", platform.setSending)
	get(t, "/admin/agents", platformAdmin,
		"listAgents: List the agent version of each channel, and the versions that hosts run", platform.listAgents)
	put(t, "/admin/agents/{name}", platformAdmin,
		"setAgentChannel: Set the agent version of a channel, and the share of its hosts that run it", platform.setChannel)
	get(t, "/admin/version-floors", platformAdmin,
		"listVersionFloors: List the oldest versions of hosts' programs that may run renters' work", platform.listFloors)
	put(t, "/admin/version-floors/{component}", platformAdmin,
		"setVersionFloor: Set the oldest version of a program's branch", platform.setFloor)
	post(t, "/admin/version-floors/{component}/remove", platformAdmin, 200,
		"removeVersionFloor: Remove the floor of a program's branch", platform.removeFloor)
	get(t, "/admin/gpus/contested", platformAdmin,
		"listAllContestedGPUs: List GPUs that hosts of several organisations list, in the order in which they were "+
			"listed, up to 200", hosts.allContested)
	post(t, "/admin/gpus/{uuid}/award", platformAdmin, 200,
		"awardGPU: Decide which host has a GPU, with a reason that the operators read", hosts.awardGPU,
		fails(fault.Conflict))
	get(t, "/admin/gangs", platformAdmin,
		"getGangs: Get strikes by host, pairs that are kept apart, and relief by cluster", admin.gangs)
	get(t, "/admin/dead-letters", platformAdmin,
		"listDeadLetters: List rows that a background job cannot process, longest failing first, up to 500",
		platform.deadLetters)
	get(t, "/admin/store", platformAdmin, "getStoreCheck: Get what the checks of the store of volumes have found",
		platform.storeCheck)
}
