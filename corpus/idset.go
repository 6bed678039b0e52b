package corpus

import "crypto/sha256"

// idSet remembers ids. Numbers, as which the published corpora count their
// passages, cost about two bits each when they are dense; other ids cost 16
// bytes and the map's share.
type idSet struct {
	numbers map[uint64]*[8]uint64 // 512 numbers a page
	others  map[[16]byte]struct{}
	last    uint64     // number of the page
	page    *[8]uint64 // looked at last; nil: none
}

func newIDSet() *idSet {
	return &idSet{numbers: map[uint64]*[8]uint64{}, others: map[[16]byte]struct{}{}}
}

// idKey is what an idSet remembers of an id. To make it is most of the work, and
// needs no order.
type idKey struct {
	number uint64
	plain  bool // the id is number
	sum    [16]byte
}

func keyOf(id string) (k idKey) {
	if k.number, k.plain = plainNumber(id); !k.plain {
		sum := sha256.Sum256([]byte(id))
		k.sum = [16]byte(sum[:16])
	}
	return k
}

// add says whether id is new.
func (s *idSet) add(id string) bool {
	k := keyOf(id)
	return s.addKey(&k)
}

func (s *idSet) addKey(k *idKey) bool {
	if n := k.number; k.plain {
		if s.page == nil || s.last != n/512 {
			if s.last, s.page = n/512, s.numbers[n/512]; s.page == nil {
				s.page = new([8]uint64)
				s.numbers[s.last] = s.page
			}
		}
		word, bit := &s.page[n%512/64], uint64(1)<<(n%64)
		isNew := *word&bit == 0
		*word |= bit
		return isNew
	}
	_, known := s.others[k.sum]
	s.others[k.sum] = struct{}{}
	return !known
}

// plainNumber reads a number that is written the one usual way.
func plainNumber(id string) (uint64, bool) {
	if id == "" || len(id) > 18 || id[0] == '0' && len(id) > 1 {
		return 0, false
	}
	n := uint64(0)
	for _, c := range []byte(id) {
		if c-'0' >= 10 {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return n, true
}
