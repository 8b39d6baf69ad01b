package main

const (
	commitGo   = "internal/data/volume/commit.go"
	roundGo    = "internal/data/volume/round.go"
	verifyGo   = "internal/data/volume/verify.go"
	sessionsGo = "internal/data/volume/sessions.go"
	prepareGo  = "internal/data/volume/prepare.go"
)

// ofVolumes are tests of volumes on a real database.
func ofVolumes(run string) []suite { return []suite{{"./internal/data/volume", run}} }

// dataMutants break the rules of what volumes have stored.
var dataMutants = []mutant{
	{
		name: "no-pack-check", rule: "a commit names only packs that are in the store and stay there", file: commitGo,
		old: "	if n == p.packs.Len() || cs.sessions.without == withoutPackCheck {\n",
		new: "	if true {\n",
		by:  ofVolumes("TestCommits|TestReturnedHostsAreRefused|TestADoomedPackThatWasNeverStored"),
	},
	{
		name: "no-store-check", rule: "a commit looks for its packs in the store", file: verifyGo,
		old: "				missing = append(missing, p.n)\n",
		new: "				found = append(found, p.n)\n",
		by:  ofVolumes("TestCommits"),
	},
	{
		name: "no-fence", rule: "a run that is over writes nothing", file: sessionsGo,
		old: "	if ss.without == withoutFence {\n",
		new: "	if true {\n",
		by:  ofVolumes("TestAVolumeFollows|TestReturnedHostsAreRefused"),
	},
	{
		name: "no-epoch-fence", rule: "a run of an epoch that is over writes nothing", file: sessionsGo,
		old: "	case s.LeaseEpoch == nil || *s.LeaseEpoch != x.Epoch || s.LeaseGoneAt != nil || s.FlushOver:\n",
		new: "	case s.LeaseGoneAt != nil || s.FlushOver:\n",
		by:  ofVolumes("TestReturnedHostsAreRefused"),
	},
	{
		name: "any-base", rule: "a commit moves the head from the base that its writer knows", file: commitGo,
		old: "	if p.BaseSeq != row.HeadSeq {\n",
		new: "	if false {\n",
		by:  ofVolumes("TestCommits"),
	},
	{
		name: "early-round", rule: "a round is committed when all ranks have prepared it", file: roundGo,
		old: "			r.missing = append(r.missing, int(row.Rank))\n",
		new: "",
		by:  ofVolumes("TestRanksCommitTogether"),
	},
	{
		name: "stale-round", rule: "a round that has changed since its merge is merged again", file: roundGo,
		old: "	if !was.sameAs(r) {\n",
		new: "	if false {\n",
		by:  ofVolumes("TestRanksAndAKilledServer"),
	},
	{
		name: "label-twice", rule: "a label is committed once for each start", file: prepareGo,
		old: "		if used {\n",
		new: "		if used && false {\n",
		by:  ofVolumes("TestRanksOfHostileHosts"),
	},
}
