def make_self_contained(site):
    pass
