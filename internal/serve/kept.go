package serve

import "slices"

// kept are the caches of turns that have ended, so that the next turn of the same
// conversation, or another sample of the same prompt, need not read it again.
// The one unused for longest goes first. Used by the engine alone.
type kept struct {
	list   []*keptCache // the one used last at the end
	tokens int          // in all of them
	limit  int          // greatest value of tokens
	most   int          // greatest length of list: each new turn is compared with all
}

type keptCache struct {
	ids    []int32 // the tokens in cache
	images []promptImage
	cache  Cache
}

// shared is how many leading tokens of p a sequence with these tokens and images
// has in common with it; an image counts only whole. At least one token of p is
// left to be read, since its logits are needed.
func shared(p *prompt, ids []int32, images []promptImage) int {
	n, limit := 0, min(len(ids), len(p.ids)-1)
	for n < limit && ids[n] == p.ids[n] {
		n++
	}
	for i := range p.images {
		im := &p.images[i]
		if im.offset >= n {
			break
		}
		if im.offset+im.tokens > n || i >= len(images) || images[i].offset != im.offset || images[i].grid != im.grid || images[i].key != im.key {
			return im.offset
		}
	}
	return n
}

// find returns the cache that has most in common with p, and how much.
func (k *kept) find(p *prompt) (best *keptCache, n int) {
	for _, c := range k.list {
		if m := shared(p, c.ids, c.images); m > n {
			best, n = c, m
		}
	}
	return best, n
}

// use gives a cache with the first n tokens of c: c's own when it has no more
// (a conversation goes on), else a fork.
func (k *kept) use(c *keptCache, n int) Cache {
	k.list = slices.DeleteFunc(k.list, func(x *keptCache) bool { return x == c })
	if n == len(c.ids) {
		k.tokens -= len(c.ids)
		return c.cache
	}
	k.list = append(k.list, c)
	f := c.cache.Fork()
	f.Truncate(n)
	return f
}

// keep takes over the cache of a turn that has ended.
func (k *kept) keep(s *sequence) {
	n := s.fed
	ids := make([]int32, 0, n)
	ids = append(ids, s.prompt.ids[:min(n, len(s.prompt.ids))]...)
	ids = append(ids, s.ids[:n-len(ids)]...)
	images := make([]promptImage, 0, len(s.prompt.images))
	for _, im := range s.prompt.images {
		if im.offset < n {
			im.patches = nil
			images = append(images, im)
		}
	}
	k.list = append(k.list, &keptCache{ids, images, s.cache})
	k.tokens += n
	k.shrink(k.limit)
	for len(k.list) > k.most {
		k.drop()
	}
}

// shrink drops caches until at most limit tokens are kept.
func (k *kept) shrink(limit int) {
	for k.tokens > limit && len(k.list) > 0 {
		k.drop()
	}
}

func (k *kept) drop() {
	c := k.list[0]
	k.list = slices.Delete(k.list, 0, 1)
	k.tokens -= len(c.ids)
	c.cache.Release()
}
