"""What can be asked of a posterior: totals, ranks, excursions, residuals, left-out blocks, another map."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from geobgp.arguments import CLIENT, JOBS, MIN_COUNT, POSTERIOR, PROBABILITIES
from geobgp.errors import DataError
from geobgp.inference.leave_out import ROUNDS
from geobgp.privacy import Protection, hide_blocks, protected, refuse
from geobgp.validate import FLAG, NAME, SEED, choice, door, number, whole
from geobgp.validate import names as some_names

if TYPE_CHECKING:
    import geopandas as gpd

    from geobgp.checks.crossval import CrossValidation
    from geobgp.checks.excursions import Excursion
    from geobgp.checks.pearson import Residuals
    from geobgp.checks.variation import Variation
    from geobgp.checks.versus import Versus
    from geobgp.data.areas import AreaCounts
    from geobgp.posterior import Posterior


class Questions:
    """What a posterior answers about land as a whole; each method hands it to the module that knows."""

    if TYPE_CHECKING:
        exposure_kind: str

        @property
        def areas(self) -> AreaCounts | None: ...  # noqa: D102
        def _need_counts(self, what: str) -> None: ...

    @door(min_count=MIN_COUNT, protect=choice("hide", "smooth"), min_people=number(least=0.0))
    def protected(
        self,
        min_count: int | str,
        protect: Literal["hide", "smooth"] = "hide",
        *,
        min_people: float = 0.0,
    ) -> Posterior:
        """Return the same posterior, with the numbers hidden that rest on fewer events than `min_count`.

        Parameters
        ----------
        min_count : int or str
            k. An estimate rests on 1 / V events, V the posterior variance of the log-intensity: those of the place
            itself and those borrowed from around it. Where these are fewer than k, the cell is hidden, whether or not
            anything happened there. Or the rule of an office: "cdc" (1 to 9 are hidden), "nhs" (1 to 7 are hidden,
            other counts rounded to 5), "ons" (1 and 2). 0 hides nothing.
        protect : "hide" or "smooth"
            Hide what rests on too few; or fit again with a lengthscale so long that nearly all land (99 %) may be
            shown, and hide the rest.
        min_people : float
            Cells and regions with fewer people are hidden, whatever the events.

        Returns
        -------
        Posterior
            NaN in `intensity`, `exceedance`, `latent`, `sample`, `predict`, `intensity_at`, `excursion`, rasters,
            maps and figures where it is hidden; what is shown is told in steps of 2 / k on the log scale, for from an
            exact map single events can be computed back. In `totals` and `ranks` regions with 1 to k - 1 events are
            hidden, those that rest on fewer than k, and others by which a total would give these away; ``hidden`` and
            ``why`` say so. `save` writes a file without counts and without the fit; `residuals` are refused.

        Notes
        -----
        A number below k may still follow from several maps of the same events, on other cells or of other periods, or
        from totals of regions that overlap: publish one.

        Examples
        --------
        >>> import numpy as np, shapely
        >>> from geobgp import LGCP, Domain, FullRank, Matern
        >>> domain = Domain.from_polygons(shapely.box(0, 0, 10, 10), cell_size=1, crs="local")
        >>> counts = np.random.default_rng(0).poisson(0.05 * domain.node_points[:, 0])
        >>> posterior = LGCP(FullRank(domain), Matern(1.0, 8.0, 1.0)).fit(counts)
        >>> hidden = posterior.protected(8).intensity()["mean"].isnull()
        >>> bool(hidden[:, 0].mean() > hidden[:, 5].mean())  # fewer events in the west
        True
        """
        return protected(cast("Posterior", self), Protection.of(min_count, protect, min_people))

    @door(by=NAME, quantiles=PROBABILITIES, predicted=FLAG, n_samples=whole(2), seed=SEED)
    def totals(
        self,
        regions: gpd.GeoDataFrame | gpd.GeoSeries | str | Path | Any = None,
        *,
        by: str | None = None,
        points: Any = None,
        quantiles: Sequence[float] | None = None,
        predicted: bool = False,
        n_samples: int = 2000,
        seed: int = 0,
    ) -> gpd.GeoDataFrame:
        """Return the expected number of events in regions, with intervals from the joint posterior.

        A node that a region's border crosses is cut exactly: the region gets the people who live on its part, as the
        polygons or pixels of the exposure have them, or its share of the land where the exposure is known by node only.

        Parameters
        ----------
        regions : GeoDataFrame, GeoSeries, geometry, list of geometries or path, optional
            In any CRS (bare geometries: in the domain's). None: the whole domain as one region. One row each.
        by : str, optional
            A column of the regions: polygons with the same value in it are one region, as the parts of a province are.
            Of the other columns nothing is left; polygons without a value stay apart.
        points : GeoDataFrame, array, path or Counts, optional
            The points that were mapped (what `bin_points` takes, or what it gave with ``keep_coordinates=True``), for
            ``observed``. A posterior knows by itself where its points lie, as long as it is in memory and they are
            2 million at most; once saved and loaded it knows its events by node only.
        quantiles : sequence of float, optional
            By default the ends of the `interval`, and the median.
        predicted : bool
            Add ``predicted_q05``, ...: quantiles of the number of events reported in such a period as was observed,
            which varies around the expected number as the likelihood's counts do.
        n_samples, seed : int
            Joint samples behind sd and quantiles; the mean is exact.

        Returns
        -------
        GeoDataFrame
            The regions with ``land_km2`` (land of the domain within), ``exposure`` (where one was given), ``observed``
            (the events truly inside: by where the points lie, those off the land where they were moved to; by node
            where that is not known; by area for regions made of areas; NaN where it cannot be known), ``expected``
            with its ``sd`` and its quantiles ``q05``, ...; ``rate`` in `units` and, of people or expected cases,
            ``relative_risk`` to the average, each with its own, ``rate_q05``, ...; ``p_above``, how probably
            the rate is above the average of all land (of a relative risk: above 1); and ``reported``, the part of
            ``expected`` that an effort lets see. NaN where a region holds no land or nobody is exposed.
        """
        from geobgp.totals import totals

        self._need_counts("totals()")
        return totals(
            cast("Posterior", self),
            regions,
            by=by,
            points=points,
            quantiles=quantiles,
            predicted=predicted,
            n_samples=n_samples,
            seed=seed,
        )

    @door(
        threshold=number(above=0.0), probability=number(least=0.5, below=1.0), n_samples=whole(1), seed=SEED
    )
    def excursion(
        self, threshold: float, probability: float = 0.9, *, n_samples: int = 1000, seed: int = 0
    ) -> Excursion:
        """Return the largest region that exceeds `threshold` everywhere at once with `probability`, and its opposite.

        Parameters
        ----------
        threshold : float
            In the intensity's unit.
        probability : float
            From 0.5 to less than 1.
        n_samples, seed : int
            Joint samples behind it.

        Returns
        -------
        Excursion
            `above`, `below` (nodes) and what is between; `to_raster`, `to_polygons`, `plot`.
        """
        from geobgp.checks.excursions import excursion

        self._need_counts("excursion()")
        return excursion(cast("Posterior", self), threshold, probability, n_samples=n_samples, seed=seed)

    @door(by=NAME, top=whole(1), reference=number(least=0.0), n_samples=whole(1), seed=SEED)
    def ranks(
        self,
        regions: Any,
        *,
        by: str | None = None,
        top: int = 3,
        reference: float | None = None,
        n_samples: int = 2000,
        seed: int = 0,
    ) -> gpd.GeoDataFrame:
        """Return how regions rank by their rate, with the probability of each claim.

        Parameters
        ----------
        regions : GeoDataFrame, GeoSeries, list of geometries or path
            As for `totals`.
        by : str, optional
            A column of the regions: polygons with the same value in it are one region.
        top : int
            How many regions are the top.
        reference : float, optional
            A rate in `units`; by default that of all the land, which is drawn together with the regions'.
        n_samples, seed : int
            Joint samples behind it.

        Returns
        -------
        GeoDataFrame
            The regions with their land, ``rate`` (expected events per unit of exposure, in `units`) with
            ``rate_q05`` and ``rate_q95``, ``rank`` (1 is the highest; the median) with its own, and the probabilities
            ``p_first`` of rank 1, ``p_top3`` of being among the top, ``p_above`` of a rate above the reference.
            NaN where a region holds no land or nobody is exposed.
        """
        from geobgp.checks.ranks import ranks

        self._need_counts("ranks()")
        return ranks(
            cast("Posterior", self),
            regions,
            by=by,
            top=top,
            reference=reference,
            n_samples=n_samples,
            seed=seed,
        )

    @door(n_simulations=whole(39), seed=SEED)
    def residuals(self, *, n_simulations: int = 99, seed: int = 0) -> Residuals:
        """Return residuals of the events that made the map, with bands of events simulated from it.

        Parameters
        ----------
        n_simulations : int
            At least 39.
        seed : int

        Returns
        -------
        Residuals
            `pearson` in squares, `dispersion`, `lurking` variables, `pairs` of events by distance, `plot()`.
        """
        from geobgp.checks.pearson import residuals

        self._need_counts("residuals()")
        refuse(cast("Posterior", self), "residuals()", "shows the events of every square")
        return residuals(cast("Posterior", self), n_simulations=n_simulations, seed=seed)

    @door(other=POSTERIOR, names=some_names("two names", 2))
    def versus(self, other: Posterior, *, names: Sequence[str] | None = None) -> Versus:
        """Compare this map with another one of the same land: two periods, two diseases.

        Parameters
        ----------
        other : Posterior
            On the same domain, in the same unit, of other events: the two are taken to be independent.
        names : (str, str), optional
            What this map and the other are called; by default their titles.

        Returns
        -------
        Versus
            `ratio`, `difference`, `increase`, `totals`; `to_raster`, `to_map`, `plot`.
        """
        from geobgp.checks.versus import versus

        return versus(cast("Posterior", self), other, names)

    @door(buffer=number(least=0.0), rounds=whole(), seed=SEED, refit=FLAG, client=CLIENT, n_jobs=JOBS)
    def cross_validate(
        self,
        blocks: Any = "auto",
        buffer: float = 0.0,
        *,
        rounds: int = ROUNDS,
        seed: int = 0,
        refit: bool = False,
        client: Any = None,
        n_jobs: int | None = 1,
    ) -> CrossValidation:
        """Predict every block of the land from the events outside it, without new fits.

        A block's observations are taken out of the posterior, and its neighbourhood is brought up to date; the
        hyperparameters are held (a mixture over them is weighed anew). Of counts by area each area with a number is a
        block, and `blocks`, `buffer` and `rounds` say nothing. Of cases and controls, the cases among the persons of a
        block are predicted.

        Parameters
        ----------
        blocks : "auto", float, regions or folds
            "auto": squares of about two lengthscales, some dozens of them at least. A number: the side of squares, in
            the domain's unit. Polygons (whatever `totals` takes): a node belongs to the one with the most of its land.
            An array with a label for each node: nodes of one label are left out together; those without one never are.
        buffer : float
            Width of a strip around each block that is left out with it and not predicted, in the domain's unit.
        rounds : int
            How often the neighbours of a block are brought up to date; 0 is quicker, and near where data are plenty.
        seed : int
            Of the predictive draws and of the randomised PIT values.
        refit : bool
            Fit anew without each block, hyperparameters too: for those who want to see that it makes little difference.
        client : distributed.Client or str, optional
            The Dask client, or the address of the scheduler, whose workers fit; by default the current client.
        n_jobs : int, optional
            Processes that fit, where there is no client: this one by default; None, one for each core.

        Returns
        -------
        CrossValidation
            ``score`` and ``se`` in nats per event, ``coverage`` of intervals, ``pit``, ``blocks``, ``plot()``.

        Examples
        --------
        >>> import numpy as np, shapely
        >>> from geobgp import LGCP, Domain, FullRank, Matern
        >>> domain = Domain.from_polygons(shapely.box(0, 0, 10, 10), cell_size=1, crs="local")
        >>> counts = np.random.default_rng(0).poisson(np.exp(0.3 * domain.node_points[:, 0]))
        >>> checked = LGCP(FullRank(domain), Matern(1.0, 8.0, 1.0)).fit(counts).cross_validate(2.0)
        >>> len(checked.blocks), checked.score > 0.2
        (25, True)
        """
        from geobgp.checks.crossval import cross_validate
        from geobgp.checks.left_out_areas import cross_validate_areas
        from geobgp.checks.left_out_persons import cross_validate_persons

        self._need_counts("cross_validate()")
        if refit and (self.areas is not None or self.exposure_kind == "risk"):
            raise DataError(
                "Only points are fitted anew without each block, not areas or persons.",
                option="refit",
                remedy="Leave it out.",
            )
        posterior = cast("Posterior", self)
        if self.areas is not None:
            found = cross_validate_areas(posterior, blocks, buffer, seed=seed)
        elif self.exposure_kind == "risk":
            found = cross_validate_persons(posterior, blocks, buffer, rounds=rounds, seed=seed)
        else:
            more = {"refit": refit, "client": client, "n_jobs": n_jobs}
            found = cross_validate(posterior, blocks, buffer, rounds=rounds, seed=seed, **more)
        if isinstance(blocks, str) and not buffer:
            posterior.fit.notes["cross_validation"] = found
        return hide_blocks(found)

    def _known_variation(self) -> Variation | None:
        """Whether the map varies, without leaving anything out for it; None where it cannot be told."""
        from geobgp.checks.variation import known_variation

        return known_variation(cast("Posterior", self))

    @door(held_out=FLAG)
    def variation(self, held_out: bool | None = None) -> Variation:
        """Return whether the map varies at all, or whether one rate everywhere explains the events as well.

        The model is compared with the same one without a field: the same covariates, exposure, effort, likelihood and
        priors; over time, with a level of each period, the season and covariates alone.

        Parameters
        ----------
        held_out : bool, optional
            Whether to say how well held-out blocks are predicted against the model without a field. By default a
            `cross_validate` with automatic blocks that was made before is used, and one is made where it takes no more
            than seconds. True makes one on large maps too; False leaves it out. Over time there is none.

        Returns
        -------
        Variation
            ``log_bayes_factor``; ``verdict``: "varies" where it is above 3, "no evidence" where it is below 0, else
            "may vary"; ``score`` of held-out blocks with its standard error ``se``; ``sentence``.

        Notes
        -----
        The log Bayes factor is the bound of the log evidence with the hyperparameters integrated out by Laplace's
        approximation, less the same bound without a field. On events that are spread at random it is below 0 nine
        times in ten. The file that `save` writes keeps the answer.

        Examples
        --------
        >>> import numpy as np, shapely
        >>> from geobgp import LGCP, Domain, FullRank
        >>> domain = Domain.from_polygons(shapely.box(0, 0, 10, 10), cell_size=1, crs="local")
        >>> model = LGCP(FullRank(domain))
        >>> rng, east = np.random.default_rng(0), domain.node_points[:, 0]
        >>> model.fit(rng.poisson(3.0, domain.n_nodes)).variation().verdict
        'no evidence'
        >>> model.fit(rng.poisson(np.exp(0.2 * east))).variation().verdict
        'varies'
        """
        from geobgp.checks.variation import variation

        return variation(cast("Posterior", self), held_out)
