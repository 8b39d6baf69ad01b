package id

// One type per kind of object, in the order of the floors that own them.
type (
	User    = ID[userKind]
	Org     = ID[orgKind]
	Token   = ID[tokenKind]
	Session = ID[sessionKind]
	SSHKey  = ID[sshKeyKind]
	Notice  = ID[noticeKind]
	Mail    = ID[mailKind]
	Webhook = ID[webhookKind]
	Audit   = ID[auditKind]

	Invitation = ID[invitationKind]
	Passkey    = ID[passkeyKind]

	LedgerAccount  = ID[ledgerAccountKind]
	LedgerTx       = ID[ledgerTxKind]
	LedgerTransfer = ID[ledgerTransferKind]
	LedgerProposal = ID[ledgerProposalKind]

	Host       = ID[hostKind]
	GPU        = ID[gpuKind]
	Claim      = ID[claimKind]
	Enrollment = ID[enrollmentKind]
	Fabric     = ID[fabricKind]

	TopUp     = ID[topUpKind]
	Outbox    = ID[outboxKind]
	Card      = ID[cardKind]
	CardSetup = ID[cardSetupKind]
	Budget    = ID[budgetKind]
	Refund    = ID[refundKind]

	Payout       = ID[payoutKind]
	PayoutReview = ID[payoutReviewKind]

	Offer = ID[offerKind]
	Quote = ID[quoteKind]
	Lease = ID[leaseKind]

	Volume      = ID[volumeKind]
	Snapshot    = ID[snapshotKind]
	DataDomain  = ID[dataDomainKind]
	DataSession = ID[dataSessionKind]
	Bucket      = ID[bucketKind]
	SharedFS    = ID[sharedFSKind]     // a shared file system that an operator declares
	SharedData  = ID[sharedFolderKind] // the folder of an organisation there

	Cluster = ID[clusterKind]
	Node    = ID[nodeKind]
	Replica = ID[replicaKind]
)

type (
	userKind           struct{}
	orgKind            struct{}
	tokenKind          struct{}
	sessionKind        struct{}
	sshKeyKind         struct{}
	noticeKind         struct{}
	mailKind           struct{}
	webhookKind        struct{}
	auditKind          struct{}
	invitationKind     struct{}
	passkeyKind        struct{}
	ledgerAccountKind  struct{}
	ledgerTxKind       struct{}
	ledgerTransferKind struct{}
	ledgerProposalKind struct{}
	hostKind           struct{}
	gpuKind            struct{}
	claimKind          struct{}
	enrollmentKind     struct{}
	fabricKind         struct{}
	topUpKind          struct{}
	outboxKind         struct{}
	cardKind           struct{}
	cardSetupKind      struct{}
	budgetKind         struct{}
	refundKind         struct{}
	payoutKind         struct{}
	payoutReviewKind   struct{}
	offerKind          struct{}
	quoteKind          struct{}
	leaseKind          struct{}
	clusterKind        struct{}
	volumeKind         struct{}
	snapshotKind       struct{}
	dataDomainKind     struct{}
	dataSessionKind    struct{}
	bucketKind         struct{}
	sharedFSKind       struct{}
	sharedFolderKind   struct{}
	nodeKind           struct{}
	replicaKind        struct{}
)

func (userKind) Prefix() string           { return "user" }
func (orgKind) Prefix() string            { return "org" }
func (tokenKind) Prefix() string          { return "tok" }
func (sessionKind) Prefix() string        { return "ses" }
func (sshKeyKind) Prefix() string         { return "key" }
func (noticeKind) Prefix() string         { return "ntc" }
func (mailKind) Prefix() string           { return "mail" }
func (webhookKind) Prefix() string        { return "wh" }
func (auditKind) Prefix() string          { return "aud" }
func (invitationKind) Prefix() string     { return "inv" }
func (passkeyKind) Prefix() string        { return "pk" }
func (ledgerAccountKind) Prefix() string  { return "acct" }
func (ledgerTxKind) Prefix() string       { return "ltx" }
func (ledgerTransferKind) Prefix() string { return "tr" }
func (ledgerProposalKind) Prefix() string { return "lpr" }
func (hostKind) Prefix() string           { return "host" }
func (gpuKind) Prefix() string            { return "gpu" }
func (claimKind) Prefix() string          { return "claim" }
func (enrollmentKind) Prefix() string     { return "enr" }
func (fabricKind) Prefix() string         { return "fab" }
func (topUpKind) Prefix() string          { return "top" }
func (outboxKind) Prefix() string         { return "sto" }
func (cardKind) Prefix() string           { return "card" }
func (cardSetupKind) Prefix() string      { return "cset" }
func (budgetKind) Prefix() string         { return "bud" }
func (refundKind) Prefix() string         { return "ref" }
func (payoutKind) Prefix() string         { return "payout" }
func (payoutReviewKind) Prefix() string   { return "review" }
func (offerKind) Prefix() string          { return "off" }
func (quoteKind) Prefix() string          { return "q" }
func (leaseKind) Prefix() string          { return "ls" }
func (clusterKind) Prefix() string        { return "cl" }
func (volumeKind) Prefix() string         { return "vol" }
func (snapshotKind) Prefix() string       { return "snp" }
func (dataDomainKind) Prefix() string     { return "dom" }
func (dataSessionKind) Prefix() string    { return "dses" }
func (bucketKind) Prefix() string         { return "bkt" }
func (sharedFSKind) Prefix() string       { return "sfs" }
func (sharedFolderKind) Prefix() string   { return "shd" }
func (nodeKind) Prefix() string           { return "node" }
func (replicaKind) Prefix() string        { return "rep" }
