package token

import (
	"strconv"
	"strings"
	"unicode"
)

// The reference library mixes Unicode versions: its regular expressions know
// 16.0, its normaliser and its mark and punctuation tests 8 or 9, its lower case
// 17.0; Go's tables are of 15.0. These are the differences, found by comparing
// every code point (testdata/golden.py makes the digests that keep them true).
var (
	// In the patterns' \p{L}, \p{N}, \p{M} but not in Go's.
	newLetters = ranges(`1c89-1c8a a7cb-a7cd a7da-a7dc 105c0-105f3 10d4a-10d65 10d6f-10d85 10ec2-10ec4 11380-11389 1138b 1138e 11390-113b5 113b7 113d1 113d3 11bc0-11be0
		13460-143fa 16100-1611d 16d40-16d6c 18cff 1e5d0-1e5ed 1e5f0 2ebf0-2ee5d`)
	newNumbers = ranges(`10d40-10d49 116d0-116e3 11bf0-11bf9 16130-16139 16d70-16d79 1ccf0-1ccf9 1e5f1-1e5fa`)
	newMarks   = ranges(`897 10d69-10d6d 10efc 113b8-113c0 113c2 113c5 113c7-113ca 113cc-113d0 113d2 113e1-113e2 11f5a 1611e-1612f 1e5ee-1e5ef`)
	// Without a combining class for the reference's normaliser; and 11938, a
	// composition that it does not know.
	laterMarks = ranges(`898 89c-89f 8ca-8ce 9fe c3c d3b-d3c eba 1715 1abf-1ace 1df6-1dfa a82c 10d24-10d27 10eab-10eac 10efd-10eff 10f46-10f50 10f82-10f85 11070 1133b 1145e
		11839-1183a 11938 1193d-1193e 11943 119e0 11a34 11a47 11a99 11d42-11d45 11d97 11f41-11f42 16ff0-16ff1 1e08f 1e130-1e136 1e2ae 1e2ec-1e2ef 1e4ec-1e4ef`)
	// In Go's Mn, P and Cf but not in those of the reference's BERT normaliser.
	laterMn = ranges(`7fd 898-89f 8ca-8e1 9fe afa-aff b55 c04 c3c d00 d3b-d3c d81 eba ece 180f 1885-1886 1abf-1ace 1df6-1dfb a82c a8c5 a8ff a9bd 10d24-10d27 10eab-10eac
		10efd-10eff 10f46-10f50 10f82-10f85 11070 11073-11074 110c2 111c9 111cf 1123e 11241 1133b 11438-1143f 11442-11444 11446 1145e 1182f-11837 11839-1183a
		1193b-1193c 1193e 11943 119d4-119d7 119da-119db 119e0 11a01-11a0a 11a33-11a38 11a3b-11a3e 11a47 11a51-11a56 11a59-11a5b 11a8a-11a96 11a98-11a99
		11c30-11c36 11c38-11c3d 11c3f 11c92-11ca7 11caa-11cb0 11cb2-11cb3 11cb5-11cb6 11d31-11d36 11d3a 11d3c-11d3d 11d3f-11d45 11d47 11d90-11d91 11d95 11d97
		11ef3-11ef4 11f00-11f01 11f36-11f3a 11f40 11f42 13440 13447-13455 16f4f 16fe4 1cf00-1cf2d 1cf30-1cf46 1e000-1e006 1e008-1e018 1e01b-1e021 1e023-1e024
		1e026-1e02a 1e08f 1e130-1e136 1e2ae 1e2ec-1e2ef 1e4ec-1e4ef 1e944-1e94a`)
	laterPunct = ranges(`61d 9fd a76 c77 c84 1b7d-1b7e 2e43-2e4f 2e52-2e5d 10ead 10f55-10f59 10f86-10f89 1144b-1144f 1145a-1145b 1145d 11660-1166c 116b9 1183b 11944-11946
		119e2 11a3f-11a46 11a9a-11a9c 11a9e-11aa2 11b00-11b09 11c41-11c45 11c70-11c71 11ef7-11ef8 11f43-11f4f 11fff 12ff1-12ff2 16e97-16e9a 16fe2 1e95e-1e95f`)
	laterFormat = ranges(`890-891 8e2 110cd 13430-1343f`)
)

// isMn, isPunct are the BERT normaliser's tests.
func isMn(r rune) bool {
	return unicode.Is(unicode.Mn, r) && !unicode.Is(laterMn, r) || r == 0x1734
}

func isPunct(r rune) bool {
	return unicode.IsPunct(r) && !unicode.Is(laterPunct, r) || r == 0x166d || r == 0x111c9
}

// lower is the lower case of one rune; 'İ' is the caller's.
func lower(r rune) rune {
	switch {
	case r >= 0x10d50 && r <= 0x10d65:
		return r + 0x20
	case r >= 0x16ea0 && r <= 0x16eb8:
		return r + 0x1b
	case r == 0xa7cb:
		return 0x264
	case r == 0xa7dc:
		return 0x19b
	case r == 0x1c89, r == 0xa7cc, r == 0xa7ce, r == 0xa7d2, r == 0xa7d4, r == 0xa7da:
		return r + 1
	}
	return unicode.ToLower(r)
}

// ranges reads "61d 9fd 1b7d-1b7e", in ascending order.
func ranges(s string) *unicode.RangeTable {
	t := new(unicode.RangeTable)
	for f := range strings.FieldsSeq(s) {
		a, b, ok := strings.Cut(f, "-")
		if !ok {
			b = a
		}
		lo, errLo := strconv.ParseUint(a, 16, 32)
		hi, errHi := strconv.ParseUint(b, 16, 32)
		switch {
		case errLo != nil || errHi != nil:
			panic("token: bad range " + f)
		case hi <= 0xffff:
			t.R16 = append(t.R16, unicode.Range16{Lo: uint16(lo), Hi: uint16(hi), Stride: 1})
		default:
			t.R32 = append(t.R32, unicode.Range32{Lo: uint32(lo), Hi: uint32(hi), Stride: 1})
		}
	}
	return t
}
