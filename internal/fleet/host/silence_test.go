package host

import "testing"

// Only operators count: however many hosts one of them, or a few, make silent, strangers' lost hosts stay lost.
func TestMassSilence_CountsOperators(t *testing.T) {
	t.Parallel()
	each := func(n int, o operatorSilence) (out []operatorSilence) {
		for range n {
			out = append(out, o)
		}
		return out
	}
	one := operatorSilence{hosts: 1}
	for name, c := range map[string]struct {
		all  []operatorSilence
		want bool
	}{
		"none":                               {each(9, operatorSilence{3, 0}), false},
		"one operator's ten hosts":           {append(each(9, operatorSilence{3, 0}), operatorSilence{10, 10}), false},
		"four operators":                     {each(4, operatorSilence{9, 9}), false},
		"five operators, all of their hosts": {each(5, operatorSilence{2, 2}), true},
		"five, of which one has most hosts":  {append(each(4, operatorSilence{1, 1}), operatorSilence{6, 6}), false},
		"five of many operators":             {append(each(5, operatorSilence{9, 9}), each(21, one)...), false},
		"five with few of the hosts":         {append(each(5, operatorSilence{1, 1}), operatorSilence{21, 0}), false},
		"a fifth of operators and of hosts":  {append(each(5, operatorSilence{1, 1}), each(20, one)...), true},
		"less than a fifth of the hosts":     {each(10, operatorSilence{6, 1}), false},
	} {
		if got := massSilent(c.all); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
