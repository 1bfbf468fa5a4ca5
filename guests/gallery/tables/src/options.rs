//! Prices of European options (Black and Scholes, 1973).

use callbox_guest::{Failure, Operand, ResultBuffer, target};
use gallery::row_major;

/// Computes the prices of calls, or of puts with `put`.
#[target(elementwise)]
fn black_scholes(
    #[dimensions(..)] spot: &Operand<f64>,
    #[dimensions(..)] strike: &Operand<f64>,
    #[dimensions(..)] years: &Operand<f64>,
    #[dimensions(..)] volatility: &Operand<f64>,
    #[dimensions(..)] price: &mut ResultBuffer<f64>,
    #[attr] rate: f64,
    #[attr] put: bool,
) -> Result<(), Failure> {
    row_major(&[
        ("spot", spot.shape()),
        ("strike", strike.shape()),
        ("years", years.shape()),
        ("volatility", volatility.shape()),
        ("price", price.shape()),
    ])?;
    for (i, price) in price.iter_mut().enumerate() {
        let option = Contract::new([spot[i], strike[i], years[i], volatility[i]], rate, put);
        *price = option.price();
    }
    Ok(())
}

/// Computes the derivatives of the price by the four operands of `black_scholes`, each times
/// `dprice`: delta, the derivative by the strike, minus theta, and vega.
#[target(elementwise)]
#[derivative_of(black_scholes)]
fn black_scholes_grad(
    #[dimensions(..)] spot: &Operand<f64>,
    #[dimensions(..)] strike: &Operand<f64>,
    #[dimensions(..)] years: &Operand<f64>,
    #[dimensions(..)] volatility: &Operand<f64>,
    #[dimensions(..)] dprice: &Operand<f64>,
    #[dimensions(..)] dspot: &mut ResultBuffer<f64>,
    #[dimensions(..)] dstrike: &mut ResultBuffer<f64>,
    #[dimensions(..)] dyears: &mut ResultBuffer<f64>,
    #[dimensions(..)] dvolatility: &mut ResultBuffer<f64>,
    #[attr] rate: f64,
    #[attr] put: bool,
) -> Result<(), Failure> {
    row_major(&[
        ("spot", spot.shape()),
        ("strike", strike.shape()),
        ("years", years.shape()),
        ("volatility", volatility.shape()),
        ("dprice", dprice.shape()),
        ("dspot", dspot.shape()),
        ("dstrike", dstrike.shape()),
        ("dyears", dyears.shape()),
        ("dvolatility", dvolatility.shape()),
    ])?;
    for (i, dprice) in dprice.iter().enumerate() {
        let option = Contract::new([spot[i], strike[i], years[i], volatility[i]], rate, put);
        let slopes = option.slopes().map(|slope| slope * dprice);
        [dspot[i], dstrike[i], dyears[i], dvolatility[i]] = slopes;
    }
    Ok(())
}

/// One option.
struct Contract {
    spot: f64,
    /// The strike, discounted to now.
    present: f64,
    strike: f64,
    volatility: f64,
    root: f64,
    rate: f64,
    d1: f64,
    d2: f64,
    /// 1 for a call, -1 for a put.
    sign: f64,
}

impl Contract {
    fn new([spot, strike, years, volatility]: [f64; 4], rate: f64, put: bool) -> Self {
        let root = years.sqrt();
        let spread = volatility * root;
        let d1 = ((spot / strike).ln() + (rate + volatility * volatility / 2.0) * years) / spread;
        Self {
            spot,
            present: strike * (-rate * years).exp(),
            strike,
            volatility,
            root,
            rate,
            d1,
            d2: d1 - spread,
            sign: if put { -1.0 } else { 1.0 },
        }
    }

    fn price(&self) -> f64 {
        let spot = self.spot * distribution(self.sign * self.d1);
        self.sign * (spot - self.present * distribution(self.sign * self.d2))
    }

    /// Returns the derivatives by spot, strike, years and volatility.
    fn slopes(&self) -> [f64; 4] {
        let density = (-self.d1 * self.d1 / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
        let exercised = self.sign * self.present * distribution(self.sign * self.d2);
        [
            self.sign * distribution(self.sign * self.d1),
            -exercised / self.strike,
            self.spot * density * self.volatility / (2.0 * self.root) + self.rate * exercised,
            self.spot * density * self.root,
        ]
    }
}

/// The normal distribution.
fn distribution(x: f64) -> f64 {
    0.5 * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2)
}
